"""Old weeks leave the ledger, and whatever happens meanwhile, nobody is mailed twice."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.kafka.transactions import TransactionError
from shardpost.settings import Settings
from shardpost.topics.guards import StoreTopic
from shardpost.weekly_email import week_retention, week_state
from shardpost.weekly_email.email_job import EmailRequest
from shardpost.weekly_email.email_run import run
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, WeekClosedError
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import (
    AUDIENCES,
    CLOSED_WEEKS,
    FROZEN_WEEKS,
    LEDGER_MARKS,
)
from shardpost.weekly_email.week_retention import close_old_weeks, erase_old_audiences
from shardpost.weekly_email.week_state import WeekState, compacted_ledger
from tests.support.at_step import Killed, at_step, killing
from tests.support.command_line import CommandLine
from tests.support.email_requests import email_request, preview
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.object_store import folder_of
from tests.support.written_weeks import CLIENTS, begin, freeze, look, mailed_home, record

OLD, NEW = IsoWeek(2024, 30), IsoWeek(2026, 46)
LAST = NEW.next
NOW = LAST.end + timedelta(hours=8)
LEDGER = "weekly-emails"
STEPS = (
    "close 2024-W30 shard 0",
    "close 2024-W30 shard 1",
    "record 2024-W30",
    "empty 2024-W30 shard 0",
    "empty 2024-W30 shard 1",
    "finish 2024-W30",
)
CLOSED = "2024-W30 was closed on 2026-11-23"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with mailed_home(tmp_path, (OLD, NEW, LAST), CLIENTS[:3]) as kafka:
        look(kafka.settings, NOW)
        record(kafka.settings, OLD, "c2", DeliveryState.UNKNOWN)
        yield kafka


@pytest.fixture
def at(kafka: MemoryKafka) -> Settings:
    """Give the settings of a home whose old audience is erased already."""
    erase_old_audiences(installed(kafka.settings), NOW)
    return kafka.settings


def request(*arguments: str) -> EmailRequest:
    return email_request(OLD, *arguments, now=NOW)


def mailed_again(settings: Settings, week: IsoWeek = OLD) -> list[str]:
    """Return whom a sender of each shard would mail that had got the mail of the week."""
    found = []
    for shard in (0, 1):
        own = [client for client in CLIENTS if partition_of(client, 2) == shard]
        with closing(Ledger(installed(settings), week, shard)) as ledger, suppress(WeekClosedError):
            states = ledger.open().states(own)
            found += [name for name, state in zip(own, states, strict=True) if state is None]
    return found


def is_closed(settings: Settings) -> bool:
    for shard in (0, 1):
        with pytest.raises(WeekClosedError):
            Ledger(installed(settings), OLD, shard).open()
        assert ShardLedger(installed(settings).kafka, OLD, shard).keys() == []
    row = week_state.list_closed(installed(settings).tables)[str(OLD)]
    assert (row.sent, row.unknown, row.failed) == ((2, 1), (0, 1), (0, 0))
    return row.emptied_at is not None


def test_the_records_of_an_old_week_leave_the_ledger_and_others_stay(
    kafka: MemoryKafka, at: Settings
) -> None:
    before = mailed_again(at, LAST)
    result = close_old_weeks(installed(at), NOW)
    assert (result.weeks, result.removed["records"], result.postponed) == ([str(OLD)], 4, {})
    assert result.lines() == ["ledger: 1 week closed: 2024-W30; 4 records removed"]
    assert is_closed(at)
    assert mailed_again(at, LAST) == before == ["c2"]
    assert close_old_weeks(installed(at), NOW).weeks == []
    for shard in (0, 1):
        kafka.broker.log(TopicPartition(LEDGER, shard)).compact()
    assert not any(
        WeekState(installed(at), week).why_incomplete() for week in (OLD, NEW, LAST, LAST.next)
    )
    assert is_closed(at)


def test_a_dry_run_says_what_would_be_closed_and_changes_nothing(at: Settings) -> None:
    result = close_old_weeks(installed(at), NOW, dry_run=True)
    assert (result.weeks, result.removed["records"]) == ([str(OLD)], 4)
    assert week_state.list_closed(installed(at).tables) == {}
    assert len(ShardLedger(installed(at).kafka, OLD, 0).keys()) == 2


def test_a_week_that_has_its_audience_is_not_closed(kafka: MemoryKafka) -> None:
    result = close_old_weeks(installed(kafka.settings), NOW)
    assert result.weeks == []
    assert "its audience is not erased yet" in result.postponed[str(OLD)]


def test_a_week_that_is_frozen_while_it_is_to_be_closed_stays_open(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen_meanwhile(own: Kafka) -> StoreTopic:
        shutil.rmtree(folder_of(at, FROZEN_WEEKS))
        freeze(at, OLD, CLIENTS[:3], NOW)
        return compacted_ledger(own)

    monkeypatch.setattr(week_retention, "compacted_ledger", frozen_meanwhile)
    result = close_old_weeks(installed(at), NOW)
    assert "its audience is not erased yet" in result.postponed[str(OLD)]
    assert week_state.list_closed(installed(at).tables) == {}


@pytest.mark.parametrize("killed_at", some(STEPS, 2))
def test_killed_at_any_step_nobody_is_mailed_again_and_the_next_run_finishes(
    at: Settings, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    with killing(at_step(monkeypatch, week_retention), killed_at):
        close_old_weeks(installed(at), NOW)
    assert mailed_again(at) == []
    close_old_weeks(installed(at), NOW)
    assert is_closed(at)


@pytest.mark.parametrize("begins_at", some(STEPS, 2))
def test_a_sender_that_begins_at_any_step_mails_nobody_again(
    at: Settings, monkeypatch: pytest.MonkeyPatch, begins_at: str
) -> None:
    found: list[list[str]] = []
    at_step(monkeypatch, week_retention)(begins_at, lambda: found.append(mailed_again(at)))
    close_old_weeks(installed(at), NOW)
    assert found == [[]]
    close_old_weeks(installed(at), NOW)
    assert is_closed(at)


def test_a_sender_on_another_machine_that_takes_over_a_shard_stops_the_close(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = Ledger.fence

    def and_then_a_sender_begins(ledger: Ledger) -> None:
        fence(ledger)
        monkeypatch.undo()
        assert Ledger(installed(at), OLD, 0).open().states(["c0"]) == [DeliveryState.SENT]

    monkeypatch.setattr(Ledger, "fence", and_then_a_sender_begins)
    result = close_old_weeks(installed(at), NOW)
    assert result.weeks == []
    assert "a newer run has taken over" in result.postponed[str(OLD)]
    assert len(ShardLedger(installed(at).kafka, OLD, 0).keys()) == 2
    assert close_old_weeks(installed(at), NOW).weeks == [str(OLD)]
    assert is_closed(at)


@pytest.mark.parametrize("begins_at", some(STEPS, 2))
def test_two_at_once_close_it_once(
    at: Settings, monkeypatch: pytest.MonkeyPatch, begins_at: str
) -> None:
    second = []
    at_step(monkeypatch, week_retention)(
        begins_at, lambda: second.append(close_old_weeks(installed(at), NOW))
    )
    assert close_old_weeks(installed(at), NOW).weeks == [str(OLD)]
    assert "is already running" in second[0].postponed[str(OLD)]
    assert is_closed(at)


def test_every_way_to_mail_the_week_is_refused_in_words(at: Settings) -> None:
    close_old_weeks(installed(at), NOW)
    for more in ((), ("--dry-run",), ("--on-unknown", "resend"), ("--shards", "1")):
        with pytest.raises(WeekClosedError, match=CLOSED):
            preview(request(*more), installed(at))
    for more in ((), ("--dry-run",), ("--scheduled",)):
        _, document = run(request("--freeze-only", *more), installed(at))
        assert CLOSED in document["skipped"]


def test_tables_of_an_older_backup_do_not_open_it(kafka: MemoryKafka, tmp_path: Path) -> None:
    at = kafka.settings
    tables = (AUDIENCES, FROZEN_WEEKS, LEDGER_MARKS)
    for table in tables:
        shutil.copytree(folder_of(at, table), tmp_path / "backup" / table.name)
    erase_old_audiences(installed(at), NOW)
    close_old_weeks(installed(at), NOW)
    for table in (*tables, CLOSED_WEEKS):
        shutil.rmtree(folder_of(at, table))
    with pytest.raises(WeekClosedError, match="2024-W30 was closed on"):
        preview(request(), installed(at))  # not even without any of them
    for table in tables:
        shutil.copytree(tmp_path / "backup" / table.name, folder_of(at, table))
    with pytest.raises(WeekClosedError, match="2024-W30 was closed on"):
        preview(request(), installed(at))
    assert mailed_again(at) == []
    # The maintenance finds it to be old again, and finishes what was done before.
    erase_old_audiences(installed(at), NOW)
    assert close_old_weeks(installed(at), NOW).removed["records"] == 0
    assert is_closed(at)


def test_a_ledger_that_was_lost_does_not_open_it(
    kafka: MemoryKafka, at: Settings, shardpost: CommandLine
) -> None:
    close_old_weeks(installed(at), NOW)
    kafka.broker.delete_topic(LEDGER)
    kafka.broker.create_topic(LEDGER, 3, {"cleanup.policy": "compact"})
    with pytest.raises(WeekClosedError, match=CLOSED):
        preview(request(), installed(at))
    shardpost("emails", "accept-ledger", "--week", str(OLD), "--why", "x", code=1)


def test_more_partitions_do_not_open_it(kafka: MemoryKafka, at: Settings) -> None:
    close_old_weeks(installed(at), NOW)
    shutil.rmtree(folder_of(at, CLOSED_WEEKS))
    logs = kafka.broker.topics[LEDGER].logs
    logs.append(type(logs[0])())
    with pytest.raises(WeekClosedError):
        preview(request(), installed(at))


def test_a_week_that_was_begun_early_and_never_frozen_is_closed_for_good(tmp_path: Path) -> None:
    with mailed_home(tmp_path, (), ()) as kafka:
        at = kafka.settings
        begin(at, OLD, OLD.start)
        record(at, OLD, "c0", DeliveryState.SENT)
        for week in (NEW, LAST):
            freeze(at, week, CLIENTS, week.end)
        assert close_old_weeks(installed(at), NOW).weeks == [str(OLD)]
        with pytest.raises(WeekClosedError):
            WeekState(installed(at), OLD).require_open(NOW)


def test_a_week_that_was_mailed_late_is_as_old_as_its_last_run(at: Settings) -> None:
    begin(at, OLD.previous, NOW - timedelta(days=100))
    assert close_old_weeks(installed(at), NOW).weeks == [str(OLD)]


def test_a_clock_that_is_ahead_closes_nothing_that_is_recent(kafka: MemoryKafka) -> None:
    at, ahead = kafka.settings, NOW + timedelta(days=3650)
    erase_old_audiences(installed(at), ahead)
    result = close_old_weeks(installed(at), ahead)
    assert result.weeks == [str(OLD)]
    assert result.warning is not None
    assert mailed_again(at, LAST) == ["c2"]


def test_a_clock_that_is_ahead_closes_no_weeks_that_were_begun_early(tmp_path: Path) -> None:
    with mailed_home(tmp_path, (), ()) as kafka:
        at = kafka.settings
        for week in (NEW, LAST):
            begin(at, week, week.start)
            record(at, week, "c0", DeliveryState.SENT)
        assert close_old_weeks(installed(at), NOW + timedelta(days=3650)).weeks == []


def test_what_is_said_of_the_week(at: Settings, shardpost: CommandLine) -> None:
    close_old_weeks(installed(at), NOW)
    of_week = ["emails", "--week", str(OLD)]
    said = shardpost(*of_week)
    assert "all    3     0       1        0           0" in said
    assert CLOSED in said
    document = shardpost.json(*of_week)
    assert [shard["sent"] for shard in document["shards"]] == [2, 1]
    assert CLOSED in document["closed"]
    for more in (["--client", "c0"], ["--state", "sent"]):
        assert CLOSED in shardpost(*of_week, *more)
    named = ["--week", str(OLD), "--client", "c2", "--as", "open", "--why", "x"]
    assert CLOSED in shardpost.refused("emails", "resolve", *named, code=1)


@dataclass
class History:
    """Mails, maintenance that is killed, restored tables and compacted logs, in any order."""

    kafka: MemoryKafka
    chance: random.Random
    weeks: list[IsoWeek]
    backup: Path
    mailed: Counter[tuple[IsoWeek, str]] = field(default_factory=Counter)

    @property
    def at(self) -> Settings:
        return self.kafka.settings

    def begin(self) -> None:
        for week in (*self.weeks, NEW, LAST):
            begin(self.at, week, week.end)
            freeze(self.at, week, CLIENTS, week.end)
        for week in self.weeks[:2]:
            self.mail(week)
        shutil.copytree(self.at.tables_root, self.backup)

    def go_on(self) -> None:
        does = [self.mail, self.mail, self.maintain, self.restore, self.compact]
        self.chance.choice(does)(self.chance.choice(self.weeks))

    def mail(self, week: IsoWeek) -> None:
        """Mail a shard as a sender does, also one that did not look at the tables."""
        shard = self.chance.randrange(2)
        own = [client for client in CLIENTS if partition_of(client, 2) == shard]
        ledger = Ledger(installed(self.at), week, shard)
        with suppress(WeekClosedError, TransactionError):
            states = ledger.open().states(own)
            if self.chance.random() < 0.3:
                self.maintain(week)  # while this sender is halted
            for client in (one for one, state in zip(own, states, strict=True) if state is None):
                ledger.write([LedgerEntry(client, DeliveryState.SENDING)])
                self.mailed[week, client] += 1
                ledger.write([LedgerEntry(client, DeliveryState.SENT)])

    def maintain(self, _week: IsoWeek) -> None:
        with suppress(Killed):
            erase_old_audiences(installed(self.at), NOW)
            close_old_weeks(installed(self.at), NOW)

    def restore(self, _week: IsoWeek) -> None:
        shutil.rmtree(self.at.tables_root)
        shutil.copytree(self.backup, self.at.tables_root)

    def compact(self, _week: IsoWeek) -> None:
        self.kafka.broker.log(TopicPartition(LEDGER, self.chance.randrange(2))).compact()


@pytest.mark.parametrize("seed", some(range(6)))
def test_in_random_histories_nobody_is_mailed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test that repeats itself

    def step(_name: str) -> None:
        if chance.random() < 0.15:
            raise Killed

    with mailed_home(tmp_path, (), ()) as kafka:
        weeks = [IsoWeek(2024, number) for number in range(30, 34)]
        history = History(kafka, chance, weeks, tmp_path / "backup")
        history.begin()
        monkeypatch.setattr(week_retention, "step", step)
        for _ in range(25):
            history.go_on()
    assert max(history.mailed.values(), default=1) == 1
