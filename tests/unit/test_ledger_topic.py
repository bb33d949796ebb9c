"""The ledger of a shard in memory, and the last look before a mail by a clock that is moved."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from shardpost.errors import ShardpostError
from shardpost.kafka.transactions import FencedError
from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import FreshCommit, Ledger, ShardLedger, StaleLedgerError
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek

WEEK = IsoWeek(2026, 47)
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
    ledger = Ledger(at, WEEK, 0)
    ledger.open()
    return ledger


def written(settings: Settings) -> list[str]:
    return [entry.client for entry in ShardLedger(settings, WEEK, 0).entries()]


def test_what_the_older_run_writes_until_it_is_fenced_is_read(
    at: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Ledger(at, WEEK, 0)
    fence = newer.fence

    def fence_late() -> None:
        ledger.write([LedgerEntry("a", DeliveryState.SENT, "<1@x>")])
        fence()

    monkeypatch.setattr(newer, "fence", fence_late)
    assert newer.open().states(["a"]) == [DeliveryState.SENT]


def test_right_after_the_commit_nothing_more_is_written(at: Settings, ledger: Ledger) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    ledger.write(SENDING)
    clock.now = 2
    commit.require()
    assert written(at) == ["a", "b"]


def test_after_two_seconds_sending_is_committed_again_once_for_the_group(
    at: Settings, ledger: Ledger
) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    ledger.write(SENDING)
    clock.now = 2.1
    commit.require()
    commit.require()
    assert written(at) == ["a", "b", "a", "b"]


def test_a_run_that_was_halted_while_another_took_over_may_not_send(
    at: Settings, ledger: Ledger
) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    ledger.write(SENDING)
    Ledger(at, WEEK, 0).open()
    clock.now = 3600
    with pytest.raises(FencedError):
        commit.require()
    assert written(at) == ["a", "b"]


def test_once_a_run_was_fenced_none_of_its_connections_may_send(
    at: Settings, ledger: Ledger
) -> None:
    clock = Clock()
    commit = FreshCommit(ledger, SENDING, clock)
    ledger.write(SENDING)
    Ledger(at, WEEK, 0).open()
    clock.now = 3600
    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(commit.require) for _ in range(4)]
        assert [type(look.exception()) for look in looks] == [FencedError] * 4


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
    with pytest.raises(StaleLedgerError, match="no commit of the ledger within 2 s"):
        commit.require()


def test_rows_say_where_and_when_a_client_has_which_state(at: Settings, ledger: Ledger) -> None:
    ledger.write(
        [LedgerEntry("a", DeliveryState.FAILED, "<1@x>", "550 no"), LedgerEntry("b", None)]
    )
    ledger.write([LedgerEntry("a", None, reason="checked by hand")])
    first, second = ShardLedger(at, WEEK, 0).rows_of("a")
    assert (first["state"], first["offset"], first["reason"]) == ("failed", 0, "550 no")
    assert (second["state"], second["offset"], second["reason"]) == ("open", 3, "checked by hand")
