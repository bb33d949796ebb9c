"""Nobody is mailed by a ledger that may have lost what it knew of the week."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from unittest.mock import Mock

import pytest
from deltalake.exceptions import CommitFailedError

from shardpost.decisions import Decision, Kind
from shardpost.delta import table_log
from shardpost.errors import ShardpostError
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import TopicPartition
from shardpost.locks.claims import LostLockError
from shardpost.locks.locks import LockedError
from shardpost.settings import Settings
from shardpost.topics.guards import StoreTopic, describe_stores
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email import week_state
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.email_context import EmailContext, Sender
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import LedgerMark
from shardpost.weekly_email.send_shard import SendOptions, Shard, send_shard
from shardpost.weekly_email.week_decisions import accept_ledger
from shardpost.weekly_email.week_state import WeekState
from tests.support import decisions
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.written_weeks import begin, commit_row

WEEK = IsoWeek(2026, 47)
NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
FROZEN = FrozenWeek(str(WEEK), "x", 1, WEEK.end, NOW, 2, 10, Rule("US"))
LEDGER = "weekly-emails"


def run(settings: Settings, week: IsoWeek = WEEK, mails: int = 3) -> None:
    """Do with the ledger what a run of the week does."""
    begin(settings, week, NOW)
    ledger = Ledger(installed(settings), week, 0)
    ledger.open()
    for number in range(mails):
        ledger.write([LedgerEntry(f"client{number}", DeliveryState.SENT)])
    WeekState(installed(settings), week).mark_end(NOW)


def accept(settings: Settings, at: datetime = NOW + timedelta(hours=1)) -> None:
    accept_ledger(installed(settings), WEEK, "anna", "nobody had been mailed", at)


def refused(settings: Settings, week: IsoWeek = WEEK) -> str:
    with pytest.raises(ShardpostError) as raised:
        WeekState(installed(settings), week).require_ledger()
    return str(raised.value)


def first_offsets(settings: Settings, week: IsoWeek) -> dict[int, int]:
    return WeekState(installed(settings), week).first_offsets(2)


def recreate(kafka: MemoryKafka, partitions: int = 2, policy: str = "compact") -> None:
    kafka.broker.delete_topic(LEDGER)
    kafka.broker.create_topic(LEDGER, partitions, {"cleanup.policy": policy})


def test_a_run_that_lost_its_lock_freezes_no_week(settings: Settings) -> None:
    tables = installed(settings).tables
    version = FrozenWeeks(tables).version()
    tables.claims.append(Mock(require=Mock(side_effect=LostLockError("taken over"))))
    with pytest.raises(LostLockError, match=r"^taken over$"):
        FrozenWeeks(tables).commit(FROZEN, version)
    tables.claims.clear()
    assert FrozenWeeks(tables).find(WEEK) is None


def test_a_ledger_that_only_runs_have_used_is_whole(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    run(kafka.settings)
    kafka.broker.log(TopicPartition(LEDGER, 0)).compact()
    assert WeekState(installed(kafka.settings), WEEK).require_ledger().name == LEDGER


@pytest.mark.parametrize("partitions", [2, 3])
def test_a_ledger_that_is_recreated_before_it_is_locked_is_accepted_as_it_is_then(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    run(kafka.settings)
    locked = WeekState.locked

    @contextmanager
    def recreated(state: WeekState, shards: Iterable[int]) -> Iterator[None]:
        recreate(kafka, partitions)
        with locked(state, shards):
            yield

    monkeypatch.setattr(WeekState, "locked", recreated)
    if partitions == 2:
        accept(kafka.settings)
        assert WeekState(installed(kafka.settings), WEEK).require_ledger().name == LEDGER
    else:
        with pytest.raises(ShardpostError, match="partitions changed meanwhile"):
            accept(kafka.settings)


def test_a_week_is_read_from_its_first_mark_on_unless_the_topic_is_another_one(
    kafka: MemoryKafka,
) -> None:
    assert first_offsets(kafka.settings, WEEK) == {}
    run(kafka.settings)
    assert first_offsets(kafka.settings, WEEK) == {0: 0, 1: 0}
    run(kafka.settings, WEEK.next)
    starts = first_offsets(kafka.settings, WEEK.next)
    assert starts[0] > 0
    ledger = ShardLedger(installed(kafka.settings).kafka, WEEK.next, 0)
    assert ledger.rows_of("client0", start=starts[0]) == ledger.rows_of("client0") != []
    recreate(kafka)
    assert first_offsets(kafka.settings, WEEK.next) == {}


def test_a_ledger_that_is_recreated_before_a_shard_has_read_it_mails_nobody(
    kafka: MemoryKafka,
) -> None:
    run(kafka.settings)
    sender = Sender("Shardpost", "news@x.example", "https://x.example/{client}", "list")
    context = EmailContext(WEEK, WEEK.end, "US", sender)
    options = SendOptions(context, ResendPolicy(), NOW, time.time())
    assert send_shard(installed(kafka.settings), options, Shard(0, 0), iter(())).error is None
    recreate(kafka)
    report = send_shard(installed(kafka.settings), options, Shard(0, 3), iter(()))
    assert report.accepted == 0
    assert f"the ledger (topic {LEDGER}) has changed since" in (report.error or "")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_of_which_kafka_may_delete_records_is_refused_by_name(
    kafka: MemoryKafka, policy: str
) -> None:
    kafka.broker.topics[LEDGER].config = {"cleanup.policy": policy}
    found = refused(kafka.settings)
    assert f"topic {LEDGER}: expected cleanup.policy=compact" in found
    assert f"found '{policy}'" in found
    assert "kafka-configs.sh" in found


def test_the_first_ledger_needs_the_partitions_of_the_settings(kafka: MemoryKafka) -> None:
    recreate(kafka, partitions=3)
    assert "expected 2 partitions (SHARDPOST_PARTITIONS" in refused(kafka.settings)
    assert "found 3" in refused(kafka.settings)


def test_a_later_week_needs_the_partitions_of_the_weeks_before(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    other = kafka.settings.model_copy(update={"partitions": 8})
    assert WeekState(installed(other), WEEK.next).require_ledger().partitions == 2
    logs = kafka.broker.topics[LEDGER].logs
    logs.append(type(logs[0])())
    assert "expected 2 partitions (as in week 2026-W47), found 3" in refused(other, WEEK.next)


def test_before_any_mark_the_partitions_are_those_of_the_frozen_weeks(kafka: MemoryKafka) -> None:
    commit_row(kafka.settings, FROZEN)
    other = kafka.settings.model_copy(update={"partitions": 8})
    assert WeekState(installed(other), WEEK.next).require_ledger().partitions == 2


def test_a_run_that_ends_while_another_one_looks_is_no_loss(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(kafka.settings)

    def and_then_a_run_ends(at: Kafka, topics: Sequence[str]) -> list[StoreTopic]:
        found = describe_stores(at, topics)
        with monkeypatch.context() as patch:
            patch.setattr(week_state, "describe_stores", describe_stores)
            run(kafka.settings)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(week_state, "describe_stores", and_then_a_run_ends)
        WeekState(installed(kafka.settings), WEEK).require_ledger()
    assert week_state.list_marks(installed(kafka.settings).tables)[-1].ends == (12, 0)


def test_a_ledger_that_was_recreated_is_refused_for_the_weeks_that_it_held(
    kafka: MemoryKafka,
) -> None:
    run(kafka.settings)
    recreate(kafka)
    found = refused(kafka.settings)
    assert "week 2026-W47: the ledger (topic weekly-emails)" in found
    assert "deleted and created again" in found
    assert "`shardpost emails accept-ledger --week 2026-W47`" in found
    assert WeekState(installed(kafka.settings), WEEK.next).require_ledger().partitions == 2


def test_a_run_that_was_killed_before_its_end_leaves_the_mark_of_its_start(
    kafka: MemoryKafka,
) -> None:
    begin(kafka.settings, WEEK, NOW)
    recreate(kafka)
    assert "deleted and created again" in refused(kafka.settings)


def test_a_ledger_whose_records_were_deleted_is_refused_for_the_weeks_that_it_held(
    kafka: MemoryKafka,
) -> None:
    run(kafka.settings, WEEK.previous)
    start = kafka.broker.log(TopicPartition(LEDGER, 0)).end
    run(kafka.settings)
    kafka.broker.log(TopicPartition(LEDGER, 0)).delete_before(start)
    assert "the records from 0 to 5 were deleted" in refused(kafka.settings, WEEK.previous)
    assert WeekState(installed(kafka.settings), WEEK).require_ledger()
    kafka.broker.log(TopicPartition(LEDGER, 0)).delete_before(start + 1)
    assert f"the records from {start} to {start} were deleted" in refused(kafka.settings)


def test_a_ledger_that_ends_before_its_last_record_is_refused(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    log = kafka.broker.log(TopicPartition(LEDGER, 0))
    log.end, log.entries = 2, log.entries[:2]
    assert "partition 0: it ends at offset 2, but ended at 6 before" in refused(kafka.settings)


def test_a_frozen_week_whose_marks_are_gone_is_refused_until_a_person_accepts_its_ledger(
    kafka: MemoryKafka,
) -> None:
    run(kafka.settings, WEEK.previous)
    commit_row(kafka.settings, FROZEN)
    for _ in range(2):
        assert (
            "2026-W47: its audience is frozen, but the table ledger_marks has no mark"
            in refused(kafka.settings)
        )
        recreate(kafka)
    assert WeekState(installed(kafka.settings), WEEK.next).require_ledger()
    accept(kafka.settings)
    run(kafka.settings)
    assert "deleted and created again" in refused(kafka.settings, WEEK.previous)
    recreate(kafka)
    assert "deleted and created again" in refused(kafka.settings)


def test_a_person_takes_a_lost_ledger_as_it_is_on_record(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    recreate(kafka)
    accept(kafka.settings)
    WeekState(installed(kafka.settings), WEEK).require_ledger()
    [(decision, headers)] = decisions.list_all(kafka.settings)
    assert decision == Decision(
        b"2026-W47", Kind.RESOLVED, "anna", NOW + timedelta(hours=1), "nobody had been mailed"
    )
    assert headers["as"] == b"ledger accepted"
    recreate(kafka)
    assert "deleted and created again" in refused(kafka.settings)


def test_a_ledger_that_lost_nothing_is_not_accepted(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    command = ["emails", "accept-ledger", "--week", str(WEEK), "--why", "to be sure"]
    run(kafka.settings)
    assert "2026-W47: no known losses in its ledger" in shardpost(*command)
    assert list(decisions.list_all(kafka.settings)) == []
    recreate(kafka)
    said = "accepted the current ledger; clients not in it will be mailed"
    assert said in shardpost(*command)
    assert len(list(decisions.list_all(kafka.settings))) == 1


def test_a_ledger_is_accepted_also_by_a_clock_that_is_behind(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    recreate(kafka)
    behind = NOW - timedelta(hours=1)
    accept(kafka.settings, at=behind)
    assert WeekState(installed(kafka.settings), WEEK).require_ledger()
    [*_, last] = week_state.list_marks(installed(kafka.settings).tables)
    assert last.accepted_by == "anna"
    [(decision, _)] = decisions.list_all(kafka.settings)
    assert decision.when == behind


def test_what_is_left_of_a_ledger_counts_once_a_person_has_accepted_it(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    log = kafka.broker.log(TopicPartition(LEDGER, 0))
    log.delete_before(2)
    accept(kafka.settings)
    assert WeekState(installed(kafka.settings), WEEK).require_ledger().low == (2, 0)
    log.delete_before(3)
    assert "the records from 2 to 2 were deleted" in refused(kafka.settings)


def test_a_ledger_is_not_accepted_beside_a_run(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    recreate(kafka)
    with (
        WeekState(installed(kafka.settings), WEEK).locked([1]),
        pytest.raises(LockedError, match="shard 1"),
    ):
        accept(kafka.settings)
    assert refused(kafka.settings)
    assert list(decisions.list_all(kafka.settings)) == []


def test_a_run_that_writes_nothing_adds_no_mark(kafka: MemoryKafka) -> None:
    run(kafka.settings)
    before = week_state.list_marks(installed(kafka.settings).tables)
    run(kafka.settings, mails=0)
    assert week_state.list_marks(installed(kafka.settings).tables) == before


def test_runs_that_create_the_table_of_marks_at_the_same_time_all_write_theirs(
    kafka: MemoryKafka, tmp_path: Path
) -> None:
    for number in range(4):
        at = kafka.settings.model_copy(update={"home": tmp_path / f"{number}"})
        together = Barrier(4)

        def add(week: int, at: Settings = at, together: Barrier = together) -> None:
            together.wait()
            week_state.add_mark(
                installed(at).tables, LedgerMark(f"2026-W{week}", LEDGER, "id", (0, 0), NOW)
            )

        with ThreadPoolExecutor(4) as runs:
            list(runs.map(add, range(40, 44)))
        weeks = [mark.week for mark in week_state.list_marks(installed(at).tables)]
        assert sorted(weeks) == ["2026-W40", "2026-W41", "2026-W42", "2026-W43"]


def test_a_mark_that_cannot_be_written_is_not_tried_for_ever(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflict = Mock(side_effect=CommitFailedError("Metadata changed since last commit."))
    monkeypatch.setattr(table_log, "write_deltalake", conflict)
    with pytest.raises(CommitFailedError):
        week_state.add_mark(
            installed(kafka.settings).tables, LedgerMark(str(WEEK), LEDGER, "id", (0, 0), NOW)
        )
    assert conflict.call_count == table_log.MOST_CONFLICTS + 1


def test_a_run_that_mailed_is_not_undone_because_its_end_cannot_be_marked(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.broker.delete_topic(LEDGER)
    WeekState(installed(kafka.settings), WEEK).mark_end(NOW)
    assert "2026-W47: cannot record the end of the ledger" in caplog.text
