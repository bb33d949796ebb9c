"""The ledger of a shard, the last look before a mail, and unknown deliveries a person decides."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import pytest

from shardpost.decisions import Kind
from shardpost.errors import ShardpostError
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.kafka.transactions import FencedError
from shardpost.locks.locks import LockedError
from shardpost.settings import Settings
from shardpost.weekly_email import week_decisions
from shardpost.weekly_email.ledger_topic import FreshCommit, Ledger, ShardLedger, StaleLedgerError
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_decisions import Outcome, Resolution
from shardpost.weekly_email.week_state import WeekState
from tests.support import decisions
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.written_weeks import begin

WEEK = IsoWeek(2026, 47)
NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
LEDGER = "weekly-emails"
# In shard 0 and in shard 1.
HERE, ALSO_HERE, THERE = "client1", "client3", "client5"


def shard(client: str) -> int:
    return partition_of(client, 2)


def wrote(settings: Settings, *entries: LedgerEntry) -> Ledger:
    """Write entries as the run of their shard; return its ledger, still open."""
    ledger = Ledger(installed(settings), WEEK, shard(entries[0].client))
    ledger.open()
    ledger.write(entries)
    return ledger


def unknown(client: str) -> LedgerEntry:
    return LedgerEntry(client, DeliveryState.UNKNOWN, f"<{client}@x>", "no reply")


def as_(outcome: Outcome, *clients: str) -> Resolution:
    return Resolution(WEEK, clients, outcome, "anna", "found in the log", NOW)


def rows(settings: Settings, client: str) -> list[tuple[str, str | None, str | None]]:
    found = ShardLedger(installed(settings).kafka, WEEK, shard(client)).rows_of(client)
    return [(row["state"], row["message_id"], row["reason"]) for row in found]


def test_an_unknown_one_becomes_sent_with_its_message_id_and_who_said_so(at: Settings) -> None:
    wrote(at, unknown(HERE))
    assert week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE)) == {HERE: shard(HERE)}
    reason = "resolved as sent by anna: found in the log"
    assert rows(at, HERE)[-1] == ("sent", "<client1@x>", reason)


def test_an_unknown_one_becomes_open_so_that_the_next_run_mails_it(at: Settings) -> None:
    wrote(at, unknown(HERE), unknown(ALSO_HERE))
    week_decisions.resolve(installed(at), as_(Outcome.OPEN, HERE))
    assert rows(at, HERE)[-1] == ("open", None, "resolved as open by anna: found in the log")
    index = Ledger(installed(at), WEEK, shard(HERE)).open()
    assert index.states([HERE, ALSO_HERE]) == [None, DeliveryState.UNKNOWN]


def test_what_a_killed_run_was_sending_is_unknown_and_can_be_decided(at: Settings) -> None:
    wrote(at, LedgerEntry(HERE, DeliveryState.SENDING, "<1@x>"))
    week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE))
    assert rows(at, HERE)[-1][:2] == ("sent", "<1@x>")


def test_each_client_has_a_decision_on_record_under_its_week(at: Settings) -> None:
    wrote(at, unknown(HERE))
    wrote(at, unknown(THERE))
    week_decisions.resolve(installed(at), as_(Outcome.OPEN, HERE, THERE))
    found = [
        (one.about, one.kind, one.who, one.when, one.why, headers["as"])
        for one, headers in decisions.list_all(at)
    ]
    expected = (Kind.RESOLVED, "anna", NOW, "found in the log", b"open")
    assert sorted(found) == [(f"{WEEK}/{name}".encode(), *expected) for name in (HERE, THERE)]


def test_a_decision_and_its_ledger_record_are_one_transaction(kafka: MemoryKafka) -> None:
    at = kafka.settings
    wrote(at, unknown(HERE))
    week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE))
    about = f"{WEEK}/{HERE}".encode()
    ledger = TopicPartition(at.topic("weekly-emails"), shard(HERE))
    decided = TopicPartition(at.topic("decisions"), partition_of(about, 2))
    written = [
        next(entry for entry in reversed(kafka.broker.log(place).entries) if entry.stored)
        for place in (ledger, decided)
    ]
    assert [entry.stored.key for entry in written if entry.stored] == [about, about]
    assert written[0].transaction is written[1].transaction


@pytest.mark.parametrize(
    "state", [DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.SUPPRESSED, None]
)
def test_if_one_is_not_unknown_it_is_named_and_nothing_is_changed(
    at: Settings, state: DeliveryState | None
) -> None:
    wrote(at, unknown(HERE))
    wrote(at, LedgerEntry(THERE, state))
    with pytest.raises(ShardpostError, match=f"client5 is {state or 'open'}; nothing was changed"):
        week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE, THERE))
    assert [row[0] for row in rows(at, HERE)] == ["unknown"]
    assert list(decisions.list_all(at)) == []


def test_a_ledger_that_is_created_again_before_its_locks_are_held_is_not_decided_by(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, locked = kafka.settings, WeekState.locked
    begin(at, WEEK, NOW)
    wrote(at, unknown(HERE)).close()

    def after_a_restore(state: WeekState, shards: Iterable[int]) -> AbstractContextManager[None]:
        kafka.broker.delete_topic(LEDGER)
        kafka.broker.create_topic(LEDGER, 2, {"cleanup.policy": "compact"})
        wrote(at, unknown(HERE)).close()
        return locked(state, shards)

    monkeypatch.setattr(WeekState, "locked", after_a_restore)
    with pytest.raises(ShardpostError, match=r"the ledger .* has changed since"):
        week_decisions.resolve(installed(at), as_(Outcome.OPEN, HERE))
    assert [row[0] for row in rows(at, HERE)] == ["unknown"]


def test_a_wrong_name_stops_no_run_of_another_machine(at: Settings) -> None:
    run = wrote(at, unknown(HERE))
    with pytest.raises(ShardpostError, match="client3 is open"):
        week_decisions.resolve(installed(at), as_(Outcome.SENT, ALSO_HERE))
    run.write([LedgerEntry(HERE, DeliveryState.SENT)])


def test_a_run_of_another_machine_that_is_not_dead_after_all_is_fenced(at: Settings) -> None:
    run = wrote(at, unknown(HERE))
    week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE))
    with pytest.raises(FencedError):
        run.write([LedgerEntry(HERE, None)])


def test_beside_a_run_of_its_shard_it_refuses_and_leaves_the_run_alone(at: Settings) -> None:
    run = wrote(at, unknown(HERE))
    with (
        WeekState(installed(at), WEEK).locked([shard(HERE)]),
        pytest.raises(LockedError, match=f"shard {shard(HERE)}, is already running"),
    ):
        week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE))
    run.write([LedgerEntry(HERE, DeliveryState.SENT)])


def test_what_was_resolved_before_a_shard_could_not_be_written_is_named(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote(at, unknown(HERE))
    wrote(at, unknown(THERE))
    write = Ledger.write

    def taken_over(ledger: Ledger, *records: object) -> None:
        if ledger._shard == shard(THERE):
            Ledger(installed(at), WEEK, shard(THERE)).open()
        write(ledger, *records)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "write", taken_over)
    with pytest.raises(ShardpostError, match=r"fenced: .*; resolved before that: client1"):
        week_decisions.resolve(installed(at), as_(Outcome.SENT, HERE, THERE))
    assert [rows(at, name)[-1][0] for name in (HERE, THERE)] == ["sent", "unknown"]


SENDING = [LedgerEntry("a", DeliveryState.SENDING), LedgerEntry("b", DeliveryState.SENDING)]


class Clock:
    """A clock that stands still until it is moved; `per_look` passes each time it is looked at."""

    def __init__(self) -> None:
        self.now, self.per_look = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.per_look
        return self.now


@pytest.fixture
def ledger(at: Settings) -> Ledger:
    ledger = Ledger(installed(at), WEEK, 0)
    ledger.open()
    return ledger


def written(settings: Settings) -> list[str]:
    return [entry.client for entry in ShardLedger(installed(settings).kafka, WEEK, 0).entries()]


def test_what_the_older_run_writes_until_it_is_fenced_is_read(
    at: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Ledger(installed(at), WEEK, 0)
    fence = newer.fence

    def fence_late() -> None:
        ledger.write([LedgerEntry("a", DeliveryState.SENT, "<1@x>")])
        fence()

    monkeypatch.setattr(newer, "fence", fence_late)
    assert newer.open().states(["a"]) == [DeliveryState.SENT]


def test_after_two_seconds_and_no_sooner_sending_is_committed_again_once_for_the_group(
    at: Settings, ledger: Ledger
) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    ledger.write(SENDING)
    clock.now = 2
    commit.require()
    assert written(at) == ["a", "b"]
    clock.now = 2.1
    commit.require()
    commit.require()
    assert written(at) == ["a", "b", "a", "b"]


def test_once_a_run_was_halted_and_fenced_none_of_its_connections_may_send(
    at: Settings, ledger: Ledger
) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    ledger.write(SENDING)
    Ledger(installed(at), WEEK, 0).open()
    clock.now = 3600
    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(commit.require) for _ in range(4)]
        assert [type(look.exception()) for look in looks] == [FencedError] * 4
    assert written(at) == ["a", "b"]


def test_a_commit_that_failed_for_any_reason_lets_no_later_mail_of_its_group_go(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(entries: object) -> None:
        raise ShardpostError("Kafka is away")

    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    clock.now = 3
    monkeypatch.setattr(ledger, "write", fail)
    with pytest.raises(ShardpostError, match="Kafka is away"):
        commit.require()
    monkeypatch.undo()
    clock.now = 3.1
    with pytest.raises(ShardpostError, match="Kafka is away"):
        commit.require()


def test_a_ledger_that_takes_too_long_each_time_lets_no_mail_go(ledger: Ledger) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    clock.per_look = 3
    with pytest.raises(StaleLedgerError, match="no commit to the ledger within 2 s"):
        commit.require()


def test_rows_say_where_and_when_a_client_has_which_state(at: Settings, ledger: Ledger) -> None:
    ledger.write(
        [LedgerEntry("a", DeliveryState.FAILED, "<1@x>", "550 no"), LedgerEntry("b", None)]
    )
    ledger.write([LedgerEntry("a", None, reason="checked by hand")])
    first, second = ShardLedger(installed(at).kafka, WEEK, 0).rows_of("a")
    assert (first["state"], first["offset"], first["reason"]) == ("failed", 0, "550 no")
    assert (second["state"], second["offset"], second["reason"]) == ("open", 3, "checked by hand")
