"""`tables maintain` with SHARDPOST_HISTORY_DAYS: what it says, and that it does it."""

import json
import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from shardpost.delta import snapshots
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.locks import exclusive
from shardpost.maintenance import planning
from shardpost.maintenance.maintain import maintain_all, prune_old
from shardpost.rebuilds.drop import drop
from shardpost.rebuilds.order import Action, Order
from shardpost.rebuilds.run import begun
from shardpost.rebuilds.store import rebuilding
from shardpost.settings import Settings
from tests.support.appended_histories import AppendedHistories
from tests.support.command_line import CommandLine
from tests.support.histories import START, Batch, country_of, put
from tests.support.memory_kafka import MemoryKafka

KAFKA = {"history_days": 1, "lock_wait": 0.1}


@pytest.fixture
def at(kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Give a home of three days, of whose first day one record is superseded."""
    monkeypatch.setattr(planning, "noted_snapshots", lambda _settings: set())
    world = AppendedHistories(kafka.settings)
    world.compact(Batch([put("a", "c1", "NASDAQ", 1)], [country_of("NASDAQ", "US")]))
    world.compact(Batch([put("a", "c2", "NASDAQ", 2)]))
    world.compact(Batch([put("a", "c3", "NASDAQ", 60)]))
    return kafka.settings


NOW = START + timedelta(days=3, hours=1)


def test_a_dry_run_says_how_much_would_go(at: Settings) -> None:
    said = prune_old(at, NOW, dry_run=True)
    assert said.rows == {"position_events": 1}
    assert said.history_from == NOW - timedelta(days=1)
    assert said.bytes > 0
    assert "1 of position_events would leave the histories, superseded before" in said.lines()[0]
    assert snapshots.current(at).number == 3


def test_it_is_pruned_once_and_the_snapshot_says_from_when(at: Settings) -> None:
    done = maintain_all(at, NOW)
    assert done.errors == []
    assert json.loads(json.dumps(done.as_json()))["records"]["rows"] == {"position_events": 1}
    newest = snapshots.current(at)
    assert (newest.number, newest.history_from) == (4, NOW - timedelta(days=1))
    assert maintain_all(at, NOW).lines(90)[-1]
    assert snapshots.current(at) == newest


def test_beside_a_compaction_that_goes_on_it_is_left_to_the_next_time(at: Settings) -> None:
    with exclusive(at, COMPACT_POSITIONS.name, "x"):
        done = maintain_all(at, NOW)
    assert "is already running" in done.errors[0]
    assert snapshots.current(at).number == 3


def test_a_clock_that_is_ahead_prunes_no_more_than_a_day_of_it(at: Settings) -> None:
    said = prune_old(at, NOW + timedelta(days=3650), dry_run=True)
    assert said.history_from == START + timedelta(days=3)


def test_snapshots_that_frozen_weeks_keep_do_not_hold_the_horizon_back(at: Settings) -> None:
    """Of the seven days between two of them a day would count."""
    young = at.model_copy(update={"snapshot_days": 5})
    last, weeks, days = snapshots.current(at), range(1, 21), range(1, 7)
    times = [last.committed_at + timedelta(weeks=week) for week in weeks]
    times += [times[-1] + timedelta(days=day) for day in days]
    for number, time in enumerate(times, last.number + 1):
        snapshots.commit(at, replace(last, number=number, committed_at=time))
    said = prune_old(young, times[-1], dry_run=True)
    assert said.history_from == times[-1] - timedelta(days=1)


def test_while_a_rebuild_is_open_it_is_left_to_the_next_time(at: Settings) -> None:
    order = Order(Action.START, "tester", country="US", tables=("share_holders",))
    begun(at, order)
    said, done = (maintain_all(at, NOW, dry_run=dry_run) for dry_run in (True, False))
    assert said.errors == done.errors
    expected = "old superseded records are kept: not while the tables of rebuild 2 are beside"
    assert expected in done.errors[0]
    assert any("would leave the histories" in line for line in done.lines(90))
    assert snapshots.current(at).history_from is None
    with rebuilding(at):
        assert "a run of the rebuild is already running" in maintain_all(at, NOW).errors[0]
    drop(at)
    assert maintain_all(at, NOW).errors == []
    assert snapshots.current(at).history_from == NOW - timedelta(days=1)


def test_a_rebuild_that_begins_says_up_to_when_its_histories_are_pruned(
    at: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardpost.rebuilds.run")
    order = Order(Action.START, "tester", country="US", tables=("share_holders",))
    begun(at, order)
    assert "pruned" not in caplog.text
    drop(at)
    maintain_all(at, NOW)
    begun(at, order)
    assert f"pruned up to {NOW - timedelta(days=1):%Y-%m-%d %H:%M} UTC: " in caplog.text


def test_unless_it_is_told_nothing_goes(at: Settings) -> None:
    for_good = at.model_copy(update={"history_days": None})
    assert "records" not in maintain_all(for_good, NOW).as_json()
    assert snapshots.current(at).history_from is None


def test_the_command_prints_it(shardpost: CommandLine) -> None:
    document = shardpost.json("tables", "maintain", "--dry-run")
    assert set(document["records"]) == {"history_from", "rows", "bytes", "postponed"}
