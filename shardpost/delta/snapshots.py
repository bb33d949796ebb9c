"""The table `snapshots`, the commit point of every view: its rows, without a JVM."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any

from deltalake.exceptions import TableNotFoundError

from shardpost.delta import storage, table_log
from shardpost.delta.arrow_schema import arrow_rows, arrow_schema
from shardpost.delta.query import OpenedTables, python_rows, python_values, query, select, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import RETENTION_IN_WORDS, kept_snapshots
from shardpost.delta.storage import Tables, exists, open_table
from shardpost.delta.table import Table, columns_of, from_row
from shardpost.errors import NoSnapshotError, NotFoundError, ShardpostError

SNAPSHOTS = Table(
    "snapshots",
    columns_of(Snapshot),
    comments={
        "snapshot": "number; removed ones are missing",
        "looked_at": "when the inputs were last read to `end_offsets`; 1970-01-01 if never",
        "end_offsets": "JSON `{topic: {partition: next offset}}`",
        "tables": "JSON `{table: version}`",
        "positions": "open positions, of any country",
        "holders": "clients that hold",
        "held": "their positions",
        "unknown_positions": "open positions on exchanges without a country",
        "unknown_exchanges": "JSON `{exchange: open positions}`, the 1,000 largest",
        "country": "whose stock counts, unless `holds` says it",
        "holds": "the condition of `SHARDPOST_HOLDS`; null: the default",
        "shards": "partitions of `share-holders`; never changes",
        "topic_ids": "JSON `{topic: Kafka's id}`",
        "generations": "JSON `{input: times recreated}`",
        "incomplete_look": 'JSON `{"at", "ends", "read_at"}` after a look that met an open'
        " transaction: once all below `ends` is read, `looked_at` is `at`; `read_at` is the latest"
        " look",
        "folded": "JSON `{table: snapshot}`, if files are older",
        "erased_in": "snapshot of the last erasure: earlier `client_events`, `clients`,"
        " `rejected_records` are not readable",
        "history_from": "since when histories are complete; null: always",
        "folders": "JSON `{table: folder}` of rebuilt tables",
        "rebuilt_in": "snapshot of the last swap: rows of earlier ones may differ",
        "set_country": "`SHARDPOST_HOLDS` or `SHARDPOST_COUNTRY` at a swap, if another",
        "decoder": "id of the only decoder of the histories, else null",
        "cleaning": 'JSON `{topic: {"policy", "lag_ms", "retention_ms", "segment_ms"}}` at'
        " `looked_at`, for the next run to compare",
        "scattered": 'JSON `{topic: {"snapshot", "at", "count", "keys"}}`: the last scattered keys;'
        " no keys of `clients`",
        "inputs": "JSON of `SHARDPOST_INPUTS`, by which the histories are decoded; null: plain",
    },
)
SCHEMA = arrow_schema(SNAPSHOTS)
NUMBER = "snapshot"


class ConflictError(ShardpostError):
    """Another run committed that snapshot number first."""


def newest(tables: Tables) -> Snapshot | None:
    """Return the newest committed snapshot, or None before the first."""
    try:
        table = open_table(tables, SNAPSHOTS)
    except TableNotFoundError:
        return None
    files = storage.row_files(table, NUMBER)
    # Of a file without statistics it is not known.
    least = max((file.highest for file in files if file.highest != storage.HIGHEST), default=0)
    sql = f"SELECT * FROM snapshots WHERE snapshot >= {least} ORDER BY snapshot DESC LIMIT 1"  # noqa: S608 - a number
    found = OpenedTables.of(tables, SNAPSHOTS, table).rows(sql)
    return from_row(Snapshot, found[0]) if found else None


def get(
    tables: Tables, number: int, *, now: datetime, pinned: Callable[[], Collection[int]] = tuple
) -> Snapshot:
    """Return a snapshot by number; NotFoundError if it does not exist, or is no longer kept.

    One that was returned stays readable for an hour after it is no longer kept: only then are its
    files removed (GRACE). `pinned` returns those that are kept whatever their age; the same hour
    follows when it no longer returns one.
    """
    last = newest(tables)
    if last and last.number == number:  # always kept; of the others, only one is read whole
        return last
    if last is None or not 0 < number < last.number:
        there_are = f"1 to {last.number}" if last else "none yet"
        raise NotFoundError(f"no snapshot {number}: there are {there_are}")
    committed = committed_times(tables)
    kept = kept_snapshots(committed.items(), now, tables.snapshot_days)
    if number not in kept:
        kept |= {*pinned()} & {*committed}
    found = _with_number(tables, number) if number in kept else None
    if found is None:
        of = f" of {committed[number]:%Y-%m-%d}" if number in committed else ""
        before = max((other for other in kept if other < number), default=None)
        after = min(other for other in kept if other > number)  # the newest is always kept
        nearest = f"{after}" if before is None else f"{before} and {after}"
        raise NotFoundError(
            f"snapshot {number}{of} is no longer kept: SHARDPOST_SNAPSHOT_DAYS is"
            f" {tables.snapshot_days}, {RETENTION_IN_WORDS};"
            f" the nearest kept snapshots: {nearest}"
        )
    return replace(found, erased_in=last.erased_in)


def stored(tables: Tables, number: int) -> Snapshot:
    """Return a snapshot that the maintenance keeps at any age for whoever names it.

    ShardpostError if it is gone.
    """
    last = newest(tables)
    found = _with_number(tables, number) if last else None
    if last is None or found is None:
        raise ShardpostError(f"snapshot {number} is missing from {tables.root}")
    return replace(found, erased_in=last.erased_in)


def _with_number(tables: Tables, number: int) -> Snapshot | None:
    found = select(tables, SNAPSHOTS, Snapshot, f"WHERE snapshot = {number}")
    return found[0] if found else None


def require_in_force(tables: Tables, snapshot: Snapshot) -> None:
    """Refuse a run's snapshot if a client was erased or tables were swapped since."""
    now, begun = current(tables), f"since this run began with snapshot {snapshot.number}"
    if not replace(snapshot, erased_in=now.erased_in).has_contacts:
        raise ShardpostError(f"a client was erased {begun}: run again")
    if not snapshot.is_in_force(now):
        raise ShardpostError(f"tables were swapped, or who holds was changed, {begun}: run again")


def current(tables: Tables) -> Snapshot:
    """Return the newest snapshot; ShardpostError before the first."""
    found = newest(tables)
    if found is None:
        raise NoSnapshotError(f"no snapshot in {tables.root} yet: run `shardpost compact`")
    return found


def list_all(tables: Tables, without: Collection[int] = ()) -> list[Snapshot]:
    """Return all snapshots except those with some numbers, by number.

    A follower makes 600,000 in a week: who needs few of them names the others.
    """
    if not exists(tables, SNAPSHOTS):
        return []
    gone, found = {*without}, list[Snapshot]()
    for batch in stream(tables, "SELECT * FROM snapshots", {SNAPSHOTS: None}):
        numbered = enumerate(batch[NUMBER].to_pylist())
        for is_gone, run in groupby(numbered, lambda pair: pair[1] in gone):
            places = [place for place, _ in run]
            if not is_gone:
                kept = batch.slice(places[0], len(places))
                found += [from_row(Snapshot, row) for row in python_rows(kept)]
    return sorted(found, key=lambda one: one.number)


def list_kept(tables: Tables, *, now: datetime, pinned: Collection[int]) -> list[Snapshot]:
    """Return the snapshots that `get` returns, by number."""
    times = committed_times(tables)
    kept = kept_snapshots(times.items(), now, tables.snapshot_days) | {*pinned}
    found = list_all(tables, times.keys() - kept)
    return [replace(one, erased_in=found[-1].erased_in) for one in found]


def commit(tables: Tables, snapshot: Snapshot) -> None:
    """Insert a snapshot; ConflictError if its number, or a higher one, exists."""
    row = arrow_rows(SNAPSHOTS, [snapshot])

    def insert(table: table_log.RowTable) -> None:
        there = table.newest()
        if there == snapshot.number:
            raise ConflictError(f"snapshot {there} exists already: another run committed it")
        if there > snapshot.number:
            raise ConflictError(
                f"snapshot {snapshot.number}: snapshot {there} exists already: other runs "
                "committed since"
            )
        table.insert(row)

    _change(tables, insert, f"snapshot {snapshot.number}")


def update_looked_at(tables: Tables, snapshot: Snapshot) -> None:
    """Store a committed snapshot again, with the results of a later look at the inputs."""
    row, what = arrow_rows(SNAPSHOTS, [snapshot]), f"the `looked_at` of snapshot {snapshot.number}"
    _change(tables, lambda table: table.update(snapshot.number, row), what)


def drop(tables: Tables, numbers: Collection[int]) -> None:
    """Remove the rows of snapshots that are no longer kept, but never the newest.

    Others may commit meanwhile. VersionExistsError if one always is first.
    """
    table_log.remove(tables, SNAPSHOTS, NUMBER, numbers)


def note_transaction(tables: Tables, application: str, version: int) -> None:
    """Store the version of an application transaction of Delta's in the log of the table."""
    _change(tables, lambda table: table.note({application: version}), f"{application} {version}")


def _change(tables: Tables, make: Callable[[table_log.RowTable], None], what: str) -> None:
    try:
        table_log.change(tables, SNAPSHOTS, NUMBER, make)
    except table_log.VersionExistsError as error:
        raise ConflictError(f"{what}: not stored: {error}") from None


def newest_of_folders(tables: Tables) -> list[Snapshot]:
    """Return the newest snapshot of each set of folders that tables were in, by number."""
    folders = _by_number(tables, "folders")
    newest_ = {where: number for number, where in sorted(folders.items())}
    return list_all(tables, folders.keys() - {*newest_.values()})


def runs_of(tables: Tables, snapshot: Snapshot) -> dict[int, str]:
    """Return {number: the run that made the snapshot} of all in the table, and of that one."""
    return {snapshot.number: snapshot.run} | _by_number(tables, "run")


def committed_times(tables: Tables) -> dict[int, datetime]:
    """Return {number: when it was committed} of all snapshots."""
    return _by_number(tables, "committed_at")


def _by_number(tables: Tables, column: str) -> dict[int, Any]:
    if not exists(tables, SNAPSHOTS):
        return {}
    sql = f"SELECT snapshot, {column} FROM snapshots"  # noqa: S608 - a column
    found = query(tables, sql, {SNAPSHOTS: None})  # by columns: there may be many
    return dict(zip(*map(python_values, found.columns), strict=True))
