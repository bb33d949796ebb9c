"""The rows of the table `snapshots`, those of older versions too; no JVM."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from shardpost.delta import snapshots
from shardpost.delta.query import path_of
from shardpost.delta.snapshot import MOST_AHEAD, NEVER, Counts, IncompleteLook, Snapshot
from shardpost.settings import Settings

AT = datetime(2026, 11, 16, tzinfo=UTC)
OLD_COLUMNS = pa.schema(
    [
        field
        for field in snapshots.SCHEMA
        if field.name not in {"topic_ids", "generations", "incomplete_look"}
    ]
)


def snapshot(number: int, **more: object) -> Snapshot:
    ends = {"positions": {0: 5}}
    return Snapshot(
        *(number, AT, AT, ends, {"positions": 1}, Counts(1, 1, 1), "0.1", "run", "US", 8),
        **more,  # type: ignore[arg-type]
    )


def write_old_row(settings: Settings) -> None:
    """Write the row of snapshot 1 as a version did that knew no ids."""
    row = snapshots._row(snapshot(1))
    rows = pa.Table.from_pylist([row], OLD_COLUMNS)
    write_deltalake(path_of(settings, snapshots.SNAPSHOTS), rows)


def test_ids_and_generations_of_topics_are_read_back(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    made = snapshot(1, topic_ids={"it's": 'an"id'}, generations={"positions": 2})
    snapshots.commit(settings, made)
    assert snapshots.list_all(settings) == [made]


def test_an_older_row_has_no_ids_and_the_next_snapshot_goes_beside_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    write_old_row(settings)
    assert snapshots.list_all(settings) == [snapshot(1)]
    second = snapshot(2, topic_ids={"positions": "id"}, generations={"positions": 1})
    snapshots.commit(settings, second)
    assert snapshots.list_all(settings) == [snapshot(1), second]


def test_a_run_with_nothing_new_adds_the_ids_to_an_older_row(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    write_old_row(settings)
    later = AT + timedelta(minutes=15)
    seen = snapshots.current(settings).with_looked_at(later, {"positions": "it's id"})
    snapshots.update_looked_at(settings, seen)
    assert snapshots.current(settings) == seen
    assert (seen.looked_at, seen.topic_ids) == (later, {"positions": "it's id"})
    earlier = seen.with_looked_at(AT, {"clients": "another"})
    assert earlier.looked_at == later
    assert earlier.topic_ids == {"positions": "it's id", "clients": "another"}


def test_an_incomplete_look_is_kept_until_a_complete_one(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    write_old_row(settings)
    later = AT + timedelta(minutes=15)
    found = IncompleteLook(AT, {"positions": {0: 9, 1: 2}}, read_at=later)
    seen = snapshots.current(settings).with_looked_at(AT, incomplete=found)
    snapshots.update_looked_at(settings, seen)
    assert snapshots.current(settings) == seen
    assert (seen.looked_at, seen.read_at) == (AT, later)
    complete = seen.with_looked_at(later).without_topics(["positions"])
    snapshots.update_looked_at(settings, complete)
    assert snapshots.current(settings) == complete
    assert (complete.incomplete, complete.end_offsets) == (None, {})
    second = snapshot(2, incomplete=found)
    snapshots.commit(settings, second)
    assert snapshots.current(settings) == second


def test_a_time_that_is_ahead_by_more_than_clocks_differ_is_not_known() -> None:
    made = snapshot(1)
    assert made.as_known(AT - MOST_AHEAD) == made
    unknown = made.as_known(AT - MOST_AHEAD - timedelta(seconds=1))
    assert (unknown.looked_at, unknown.read_at) == (NEVER, NEVER)
    partly = snapshot(1, incomplete=IncompleteLook(AT, {}, read_at=AT + timedelta(days=8)))
    assert partly.as_known(AT).looked_at == NEVER
