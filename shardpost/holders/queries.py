"""What people ask of one snapshot, without a JVM: who and what is known to it; and any SQL.

Known are clients and positions of which a record was read; else it is said why not: nobody knows
it, it is in another shard, or it came later.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost.delta.query import OpenedTables, at_snapshot, has_rows
from shardpost.delta.snapshot import NEVER, Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import Tables, exists
from shardpost.delta.table import Table, Version, text_literal
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.holders.model.explain import why_unknown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import CLIENT_EVENTS, POSITION_EVENTS, VIEW
from shardpost.kafka.records import partition_of


def knows_client(tables: Tables, snapshot: Snapshot, client: str) -> bool:
    """Tell whether the snapshot has a decodable record of a client, or of a position of it.

    Of one before the last erasure only the positions are known.
    """
    return _has(tables, snapshot, POSITION_EVENTS, "client", client) or (
        snapshot.has_contacts and _has(tables, snapshot, CLIENT_EVENTS, "key", client)
    )


def has_record(tables: Tables, snapshot: Snapshot, history: Table, key: str) -> bool:
    """Tell whether the snapshot has any record of a key, also a rejected one, that may be read."""
    may_read = snapshot.has_contacts or not history.contacts
    return may_read and has_rows(tables, snapshot, history, f"key = {text_literal(key)}")


def _has(tables: Tables, snapshot: Snapshot, table: Table, column: str, value: str) -> bool:
    is_decodable = f"kind <> {text_literal(RecordKind.REJECTED)}"
    condition = f"{is_decodable} AND {column} = {text_literal(value)}"
    return has_rows(tables, snapshot, table, condition)


def why_no_holder(
    tables: Tables, snapshot: Snapshot, client: str, shard: int | None = None
) -> str | None:
    """Return why a client is not among the holders, if it is not that it holds nothing."""
    if not knows_client(tables, snapshot, client):
        return unknown_client(tables, snapshot, client)
    if shard is not None and (own := partition_of(client, snapshot.shards)) != shard:
        return f"{shown(client)} is in shard {own}, not in {shard}"
    return None


def unknown_client(tables: Tables, snapshot: Snapshot, client: str) -> str:
    """Return that no decodable record that a snapshot has names a client, and why."""
    is_rejected = has_record(tables, snapshot, CLIENT_EVENTS, client)
    why = why_unknown(has_records=True) if is_rejected else "no record of it or its positions"
    return f"client {shown(client)} is unknown to snapshot {snapshot.number}: {why}"


def unknown_position(snapshot: Snapshot, position: str, why: str) -> str:
    """Return that a snapshot has no decodable record of a position, and why."""
    return f"position {shown(position)} is unknown to snapshot {snapshot.number}: {why}"


def why_no_record(
    tables: Tables, snapshot: Snapshot, client: str, position: str | None = None
) -> str:
    """Return why there is nothing to explain: what is unknown, or never was the client's."""
    unknown = []
    if not knows_client(tables, snapshot, client):
        unknown.append(unknown_client(tables, snapshot, client))
    if position is not None and not _has(tables, snapshot, POSITION_EVENTS, "key", position):
        why = why_unknown(has_records=has_record(tables, snapshot, POSITION_EVENTS, position))
        unknown.append(unknown_position(snapshot, position, why))
    if unknown:
        return "; ".join(unknown)
    what = "any position" if position is None else f"position {shown(position)}"
    return f"no record read so far gave {shown(client)} {what}"


def not_covered(snapshot: Snapshot, as_of: datetime | None) -> str | None:
    """Return that a snapshot, `as_known`, may lack records of before a time; None if it has all."""
    if as_of is None or as_of <= snapshot.looked_at:
        return None
    if snapshot.looked_at == NEVER:
        return (
            f"it is unknown up to when snapshot {snapshot.number} has all records, so later ones"
            " may be missing in this answer; `shardpost compact` shows why"
        )
    return (
        f"snapshot {snapshot.number} has the records up to {snapshot.looked_at:%Y-%m-%d %H:%M:%S}"
        " UTC: later records are not in this answer; `shardpost compact` reads them"
    )


def pruned(snapshot: Snapshot) -> str | None:
    """Return which records were pruned from the histories; None if none were."""
    if snapshot.history_from is None:
        return None
    at = f"{snapshot.history_from:%Y-%m-%d %H:%M} UTC"
    return f"superseded records before {at} were pruned (SHARDPOST_HISTORY_DAYS)"


# What begins so is a query for DataFusion's parser, whatever follows, and one statement is all that
# it takes: so nothing is written, and no file is read that is not one of the tables.
_QUERY = re.compile(r"[\s(]*(SELECT|WITH|VALUES)\b", re.IGNORECASE | re.ASCII)
_ONE_QUERY = (
    "expected one query that begins with SELECT, WITH or VALUES, since tables are read-only"
)
_SEVERAL_OR_WRITING = re.compile(r"only supports a single SQL statement|\(?Query INSERT")
_NO_TABLE = re.compile(r"table '(?:datafusion\.public\.)?(.*)' not found")
_NO_FUNCTION = re.compile(r"No function matches .*")  # before it, it asks for a bug report
_IS_TEXT = (
    "; amounts are text as written: use CAST(amount AS DOUBLE), or AS DECIMAL(38, 9) if each"
    " digit counts"
)
_EVERY = replace(SNAPSHOTS, name="every_snapshot", folder=SNAPSHOTS.path)


# How to find out of which tables, each with a part of its rows, a table consists.
Parts = Mapping[Table, Callable[[], Sequence[Table]]]


def ask(
    tables: Tables, snapshot: Snapshot, statement: str, others: Collection[Table], parts: Parts
) -> pa.RecordBatchReader:
    """Return the result of a SQL query over the tables at a snapshot, as a stream.

    And in `others`, as they are now, but for the rows of `snapshots` after that one; some of them
    are those of `parts`. UsageError for what is no query, and for one that DataFusion cannot plan;
    while it is read, ShardpostError for one that fails.
    """
    if not _QUERY.match(statement):
        raise UsageError(f"sql: {_ONE_QUERY}")
    opened = _opened(tables, snapshot, statement, others, parts)
    try:
        found = opened.reader(statement)
    except DeltaError as error:
        raise UsageError(f"sql: {_why_not(error, others)}") from None
    if not found.schema.names:
        raise UsageError(
            "sql: expected a query that returns columns, found a query without columns"
        )
    return pa.RecordBatchReader.from_batches(found.schema, _reported(found))


def _opened(
    tables: Tables, snapshot: Snapshot, statement: str, others: Collection[Table], parts: Parts
) -> OpenedTables:
    """Return the tables of which a statement has the names; no other needs to be readable."""
    named = [t for t in (*VIEW, *others) if re.search(rf"\b{t.name}\b", statement)]
    versions: dict[Table, Version] = at_snapshot(snapshot, *(t for t in named if t in VIEW))
    now = (t for t in named if t not in (*VIEW, SNAPSHOTS, *parts))
    versions |= {table: None for table in now if exists(tables, table)}
    defined = {}
    if SNAPSHOTS in named:
        versions[_EVERY] = None
        condition = f"snapshot <= {snapshot.number}"
        defined[SNAPSHOTS] = f"SELECT * FROM {_EVERY.name} WHERE {condition}"  # noqa: S608
    for table in (t for t in named if t in parts):
        each = [
            replace(part, name=f"part_{number}_of_{table.name}")
            for number, part in enumerate(parts[table]())
        ]
        versions |= dict.fromkeys(each)
        if each:  # a part of another release may lack a column
            selects = (f"SELECT * FROM {part.name}" for part in each)  # noqa: S608
            defined[table] = " UNION ALL BY NAME ".join(selects)
    opened = OpenedTables(tables, versions)
    for table, select in defined.items():
        opened.define(table.name, select)
    return opened


def _why_not(error: DeltaError, others: Collection[Table]) -> str:
    text = " ".join(str(error).split())
    if _SEVERAL_OR_WRITING.search(text):
        return _ONE_QUERY
    if not (missing := _NO_TABLE.search(text)):
        text = found[0] if (found := _NO_FUNCTION.search(text)) else text
        return text + _IS_TEXT * ("Utf8View" in text)
    names = [table.name for table in (*VIEW, *others)]
    if missing[1] in names:
        return f"no table {missing[1]} yet: nothing was written to it"
    return f"no table {missing[1]}: expected one of {', '.join(names)}"


def _reported(found: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from found
    except ArrowException as error:
        raise ShardpostError(f"sql: the query failed: {' '.join(str(error).split())}") from None
