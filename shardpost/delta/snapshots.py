"""The table `snapshots`, the commit point of every view; without a JVM."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, path_of, rows
from shardpost.delta.snapshot import Counts, IncompleteLook, Snapshot
from shardpost.delta.sql import text_literal
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.kafka.offset_ranges import Offsets
from shardpost.settings import Settings

# One row per snapshot. `tables` and `end_offsets` are JSON objects; `looked_at` is when the inputs
# were found to have no more than `end_offsets`; the counts are of the whole view; `shards` is the
# number of partitions of share-holders. `topic_ids`, `generations` and `incomplete_look` are JSON
# objects too, null in rows of versions that did not know them; the last one if all was read, too.
SNAPSHOTS = Table(
    "snapshots",
    "snapshot BIGINT, committed_at TIMESTAMP, looked_at TIMESTAMP, end_offsets STRING,"
    " tables STRING, positions BIGINT, holders BIGINT, held BIGINT, rejected BIGINT,"
    " country STRING, shards INT, code_version STRING, run STRING, topic_ids STRING,"
    " generations STRING, incomplete_look STRING",
    added=(("topic_ids", "STRING"), ("generations", "STRING"), ("incomplete_look", "STRING")),
)

SCHEMA = arrow_schema(SNAPSHOTS)


class ConflictError(ShardpostError):
    """Another run committed that snapshot number first."""


def newest(settings: Settings) -> Snapshot | None:
    """Return the newest committed snapshot, or None before the first."""
    return max(list_all(settings), key=lambda snapshot: snapshot.number, default=None)


def get(settings: Settings, number: int, *, now: datetime) -> Snapshot:
    """Return the snapshot of a number; ShardpostError if there is none, or it is no longer kept."""
    found = {snapshot.number: snapshot for snapshot in list_all(settings)}
    if number not in found:
        raise ShardpostError(f"no snapshot {number}: there are {_range_of(list(found))}")
    snapshot = found[number]
    if number != max(found) and now - snapshot.committed_at > timedelta(
        days=settings.snapshot_days
    ):
        raise ShardpostError(
            f"snapshot {number} of {snapshot.committed_at:%Y-%m-%d} is no longer kept:"
            f" SHARDPOST_SNAPSHOT_DAYS is {settings.snapshot_days}"
        )
    return snapshot


def current(settings: Settings) -> Snapshot:
    """Return the newest snapshot; ShardpostError before the first."""
    found = newest(settings)
    if found is None:
        raise ShardpostError(f"no snapshot in {settings.tables_root} yet: run `shardpost compact`")
    return found


def list_all(settings: Settings) -> list[Snapshot]:
    """Return all snapshots, by number."""
    if not exists(settings, SNAPSHOTS):
        return []
    found = rows(settings, "SELECT * FROM snapshots ORDER BY snapshot", {SNAPSHOTS: None})
    return [_snapshot(row) for row in found]


def commit(settings: Settings, snapshot: Snapshot) -> None:
    """Insert a snapshot; ConflictError if its number exists already."""
    if newest(settings) is None:
        write_deltalake(path_of(settings, SNAPSHOTS), SCHEMA.empty_table(), mode="ignore")
    table = _table(settings)
    source = pa.Table.from_pylist([_row(snapshot)], SCHEMA)
    try:
        metrics = (
            table.merge(source, "t.snapshot = s.snapshot", source_alias="s", target_alias="t")
            .when_not_matched_insert_all()
            .execute()
        )
    except CommitFailedError as error:
        raise ConflictError(
            f"snapshot {snapshot.number}: another run committed it: {error}"
        ) from None
    if metrics["num_target_rows_inserted"] != 1:
        raise ConflictError(f"snapshot {snapshot.number} exists already: another run committed it")


def update_looked_at(settings: Settings, snapshot: Snapshot) -> None:
    """Store when a snapshot that was committed before was looked at, and what is known since.

    That is `looked_at`, `incomplete`, `topic_ids` and `end_offsets`.
    """
    at, row = snapshot.looked_at.astimezone(UTC).isoformat(), _row(snapshot)
    look = row["incomplete_look"]
    _table(settings).update(
        predicate=f"snapshot = {snapshot.number}",
        updates={
            "looked_at": f"CAST('{at}' AS TIMESTAMP)",
            "topic_ids": text_literal(row["topic_ids"]),
            "end_offsets": text_literal(row["end_offsets"]),
            "incomplete_look": "CAST(NULL AS STRING)" if look is None else text_literal(look),
        },
    )


def _table(settings: Settings) -> DeltaTable:
    """Return the table, with the columns that were added after it was created."""
    from shardpost.delta.table_log import add_missing_columns  # who only reads does without Parquet

    version = DeltaTable(path_of(settings, SNAPSHOTS)).version()
    add_missing_columns(settings, SNAPSHOTS, version)
    return DeltaTable(path_of(settings, SNAPSHOTS))


def runs(settings: Settings) -> dict[int, str]:
    """Return {number: the run that made the snapshot} of all snapshots."""
    if not exists(settings, SNAPSHOTS):
        return {}
    found = rows(settings, "SELECT snapshot, run FROM snapshots", {SNAPSHOTS: None})
    return {row["snapshot"]: row["run"] for row in found}


def _range_of(numbers: list[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}" if numbers else "none yet"


def _row(snapshot: Snapshot) -> dict[str, Any]:
    form = snapshot.as_json()
    return form | {
        "committed_at": snapshot.committed_at,
        "looked_at": snapshot.looked_at,
        "end_offsets": json.dumps(form["end_offsets"]),
        "tables": json.dumps(form["tables"]),
        "held": snapshot.counts.held,
        "country": snapshot.country,
        "shards": snapshot.shards,
        "code_version": snapshot.code_version,
        "run": snapshot.run,
        "topic_ids": json.dumps(dict(snapshot.topic_ids)),
        "generations": json.dumps(dict(snapshot.generations)),
        "incomplete_look": _look_text(snapshot.incomplete),
    }


def _snapshot(row: dict[str, Any]) -> Snapshot:
    return Snapshot(
        number=row["snapshot"],
        committed_at=row["committed_at"],
        looked_at=row["looked_at"],
        end_offsets=_offsets(json.loads(row["end_offsets"])),
        tables=json.loads(row["tables"]),
        counts=Counts(row["positions"], row["holders"], row["held"], row["rejected"]),
        code_version=row["code_version"],
        run=row["run"],
        country=row["country"],
        shards=row["shards"],
        topic_ids=json.loads(row["topic_ids"] or "{}"),
        generations=json.loads(row["generations"] or "{}"),
        incomplete=_look(row["incomplete_look"]),
    )


def _offsets(form: dict[str, dict[str, int]]) -> Offsets:
    return {
        topic: {int(partition): end for partition, end in partitions.items()}
        for topic, partitions in form.items()
    }


def _look_text(look: IncompleteLook | None) -> str | None:
    if look is None:
        return None
    times = {"at": look.at.isoformat(), "read_at": look.read_at.isoformat()}
    return json.dumps(times | {"ends": look.ends})


def _look(text: str | None) -> IncompleteLook | None:
    if text is None:
        return None
    form = json.loads(text)
    at, read_at = (datetime.fromisoformat(form[name]) for name in ("at", "read_at"))
    return IncompleteLook(at, _offsets(form["ends"]), read_at)
