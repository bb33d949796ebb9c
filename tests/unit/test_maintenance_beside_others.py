"""Maintenance beside runs, freezes and readers, on a full disk; and what Kafka names."""

import errno
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from shardpost import tables
from shardpost.delta import parquet_files, snapshots, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import path_of, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders import publishing, rejected_letters
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.share_holders_topic import noted_snapshots
from shardpost.maintenance import planning
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES
from tests.support.aged_tables import START, AgedTables, data_files
from tests.support.committed_snapshot import SHARDS, commit_snapshot
from tests.support.memory_kafka import MemoryKafka

KAFKA = {"partitions": SHARDS}


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedTables:
    monkeypatch.setattr(planning, "noted_snapshots", lambda _settings: set())
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 30})
    return AgedTables(settings, Random(7))  # noqa: S311


def test_an_audience_that_is_being_frozen_stays(aged: AgedTables) -> None:
    settings = aged.settings
    aged.compact()
    table_log.create(settings, AUDIENCES, 36_500)

    def written(folder: str) -> list[str]:
        data = pa.Table.from_pylist([{"client": folder, "week": folder}], arrow_schema(AUDIENCES))
        path = f"{folder}/group=0/a.parquet"
        action = parquet_files.write(settings, AUDIENCES, data, path)
        version = table_log.newest_version(settings, AUDIENCES) or 0
        if not folder.startswith("running"):
            table_log.commit(settings, AUDIENCES, version, [action])
            _freeze(settings, folder, version + 1)
        return [path]

    kept = [*written("2026-W01"), *written("2026-W02"), *written("running-2026-W03")]
    for days in (1, 900):
        aged.wait(days=days)
        maintain(settings, aged.now)
    root = Path(path_of(settings, AUDIENCES))
    assert [path for path in kept if not (root / path).exists()] == []
    for week, version in (("2026-W01", 1), ("2026-W02", 2)):
        sql = f"SELECT client FROM audiences WHERE week = '{week}'"  # noqa: S608
        assert rows(settings, sql, {AUDIENCES: version}) == [{"client": week}]


def _freeze(settings: Settings, week: str, version: int) -> None:
    number = snapshots.current(settings).number
    frozen = FrozenWeek(week, number, START, START, version, 2, 1, "US")
    FrozenWeeks(settings).commit(frozen)


def test_the_snapshot_of_a_frozen_week_is_read_and_stays_while_somebody_may_read_it(
    aged: AgedTables,
) -> None:
    aged.compact()
    _freeze(aged.settings, "2026-W01", 0)
    for _ in range(6):
        aged.wait(hours=12)
        aged.compact()
    strict = aged.settings.model_copy(update={"snapshot_days": 1})
    found = maintain(strict, aged.now)
    assert found.pinned == {1: "the audience of 2026-W01 is of it"}
    assert 2 in found.dropped
    assert 1 in aged.require_all_kept()
    given = tables.snapshot(1, strict)
    assert aged.view(given) == aged.expected[1]
    with pytest.raises(ShardpostError, match=r"snapshot 2 .* that are: 1 and "):
        tables.snapshot(2, strict)
    erased_at = aged.now
    FrozenWeeks(strict).mark_erased(IsoWeek(2026, 1), erased_at)
    with pytest.raises(ShardpostError, match=r"snapshot 1 .* is no longer kept"):
        tables.snapshot(1, strict)
    for minutes in (0, 60):  # who was given it just before reads on
        found = maintain(strict, erased_at + timedelta(minutes=minutes))
        assert found.pinned == {1: "the audience of 2026-W01 was of it"}
        assert aged.view(given) == aged.expected[1]
    assert 1 in maintain(strict, erased_at + timedelta(hours=2)).dropped


def test_a_disk_that_has_room_once_files_are_gone_is_thinned_at_once(
    aged: AgedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged.age_and_die_thinning()
    before, written = len(data_files(aged.settings)), parquet_files.write

    def write(*given: Any) -> Any:
        if len(data_files(aged.settings)) == before:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(*given)

    monkeypatch.setattr(parquet_files, "write", write)
    found = maintain(aged.settings, aged.now)
    assert found.errors == []
    assert found.dropped
    assert aged.require_all_kept() == set(found.kept)
    assert maintain(aged.settings, aged.now).is_empty


@pytest.mark.parametrize("write", [publishing.publish, rejected_letters.send])
def test_what_was_published_and_whose_letters_were_sent_is_what_kafka_names(
    kafka: MemoryKafka, write: Callable[[Settings, Snapshot], object]
) -> None:
    made = commit_snapshot(kafka, client1=["1"])
    assert noted_snapshots(kafka.settings) == set()
    write(kafka.settings, made)
    assert noted_snapshots(kafka.settings) == {1}


def test_a_table_whose_kept_versions_cannot_be_read_is_left_alone(aged: AgedTables) -> None:
    """As Delta's own clean-up of logs left some in older releases."""
    for _ in range(14):
        aged.compact()
        aged.wait(hours=13)
    log = Path(path_of(aged.settings, POSITION_EVENTS)) / "_delta_log"
    (log / f"{1:020d}.json").unlink()
    before = {*log.parent.rglob("*.parquet")}
    found = maintain(aged.settings, aged.now)
    [error] = found.errors
    assert error.startswith("position_events: nothing removed: ")
    assert {*log.parent.rglob("*.parquet")} == before
