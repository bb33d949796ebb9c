"""Swapping rebuilt tables with those in use: one commit of the table `snapshots`.

A swap and a rollback work the same way. They hold the lock of the compaction, and the tables to be
put in use are topped up to the newest snapshot. Lists that differ get the number of the next
snapshot, so that only these are published; the row of the rebuild records where the tables in use
are left; then the snapshot is committed that names the other folders. A run that is killed before
that has changed nothing that anybody reads.

Records that only the tables coming into use reject become dead letters, too. Letters are made of
what was rejected since the snapshot up to which they were sent (holders/rejected_letters.py), so
the rows of such records get the number of the swap's snapshot. What a table rejected while it was
in use has its letters already: they are sent before each swap.
"""

import logging
import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from shardpost import __version__
from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import query, stream
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.holders.folding import restored_tables
from shardpost.holders.model import view_tables as t
from shardpost.installation import Installation
from shardpost.logs import step
from shardpost.rebuilds import registry
from shardpost.rebuilds.comparison import both, holders_sql
from shardpost.rebuilds.model.rebuild import Rebuild

# As of a letter: the place alone may be that of another record, of a former topic of the name.
_IDENTITY = ("topic", "partition", "offset", "timestamp")
_NEW = """
SELECT n.topic, n."partition", n."offset", n."timestamp" FROM new_rejected_records n
WHERE n.snapshot > {since} AND NOT EXISTS (
  SELECT 1 FROM old_rejected_records o WHERE o.topic = n.topic AND o."partition" = n."partition"
    AND o."offset" = n."offset" AND o."timestamp" = n."timestamp"
)
"""


def with_number_of_swap(
    tables: Tables, rebuild: Rebuild, last: Snapshot, standby: Snapshot, run: str
) -> tuple[int, int]:
    """Write rows of newly rejected records anew, as of the snapshot after `last`.

    Return the version of the rejected records of `standby` then, and how many rows these are. `run`
    is an id.
    """
    swapped = last.rebuilt_in or 0  # maybe an earlier rebuild
    # The last snapshot that had the standby tables in use; 0 if none had.
    sql = _NEW.format(since=swapped - 1 if swapped > rebuild.pinned else 0)
    ids = _ids(query(tables, sql, both(last, standby, t.REJECTED_RECORDS)))
    table, version = standby.located(t.REJECTED_RECORDS), standby.tables[t.REJECTED_RECORDS.name]
    if not len(ids):
        return version, 0
    name = "snapshot"

    def numbered(rows: pa.Table) -> pa.Table:
        field, number = rows.schema.field(name), last.number + 1
        is_new = pc.is_in(_ids(rows), value_set=ids)
        changed = pc.if_else(is_new, pa.scalar(number, field.type), rows[name])
        return rows.set_column(rows.schema.get_field_index(name), field, changed)

    def has_some(path: str) -> bool:
        parts = parquet_files.parts(tables, table, path, _IDENTITY)
        return any(pc.any(pc.is_in(_ids(part), value_set=ids)).as_py() for part in parts)

    files = {path: numbered for path in storage.sizes(tables, table, version) if has_some(path)}
    return commit_files(tables, table, version, files, run), len(ids)


def _ids(rows: pa.Table) -> pa.Array:
    """Return the coordinates and the timestamp of each row as one text."""
    *place, at = (rows[name] for name in _IDENTITY)
    columns = (column.cast(pa.string()) for column in (*place, at.cast(pa.int64())))
    texts = pc.binary_join_element_wise(*columns, "/")  # what follows the topic has none
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


log = logging.getLogger(__name__)


def swap_tables(
    installation: Installation, rebuild: Rebuild, last: Snapshot, standby: Snapshot
) -> tuple[Snapshot, Rebuild, int]:
    """Commit the snapshot after `last` with the tables `standby`, which are at its offsets.

    Return it, the rebuild, and how many clients' lists differ. What was published is up to date
    with `last` by then. ConflictError if another run was first.
    """
    if standby.number != last.number:
        raise ShardpostError(
            f"tables not in use: expected snapshot {last.number}, found {standby.number}: run again"
        )
    run = str(uuid.uuid4())
    standby = replace(standby, tables=restored_tables(installation.tables, standby))
    step("holders that differ")
    tables, folded, count = dict(standby.tables), dict(standby.folded), 0
    if standby.located(t.SHARE_HOLDERS) != last.located(t.SHARE_HOLDERS):
        version, count = _write_changed(installation.tables, last, standby, run)
        tables[t.SHARE_HOLDERS_CHANGES.name] = version
        if count:
            folded[t.SHARE_HOLDERS.name] = standby.folded_up_to(t.SHARE_HOLDERS.name)
    if standby.located(t.REJECTED_RECORDS) != last.located(t.REJECTED_RECORDS):
        step("newly rejected")
        found = with_number_of_swap(installation.tables, rebuild, last, standby, run)
        tables[t.REJECTED_RECORDS.name], rejected = found
        if rejected:
            log.info("%d newly rejected records become dead letters", rejected)
    step("leave tables")
    is_rollback, setting = rebuild.is_in_use(last), installation.settings.rule
    candidate, former = (last, standby) if is_rollback else (standby, last)
    left = replace(rebuild, candidate=candidate, former=former, swaps=rebuild.swaps + 1)
    rebuild = registry.update(installation.tables, left)
    # A rollback brings back what it was, and confirms nothing.
    set_country = standby.set_country if is_rollback else setting.name
    if not is_rollback and setting == standby.rule:
        set_country = None
    made = replace(
        last,
        number=last.number + 1,
        committed_at=max(datetime.now(UTC), last.committed_at),
        tables=tables,
        folders=standby.folders,
        folded=folded,
        counts=standby.counts,
        code_version=__version__,
        run=run,
        rule=standby.rule,
        set_country=set_country,
        history_from=standby.history_from,
        rebuilt_in=last.number + 1,
        decoder=standby.decoder,
        inputs=standby.inputs,
    )
    step("commit snapshot")
    snapshots.commit(installation.tables, made)
    step("swapped")
    return made, rebuild, count


def _write_changed(tables: Tables, last: Snapshot, standby: Snapshot, run: str) -> tuple[int, int]:
    """Write each client whose list changed as of the next snapshot, one without any as empty.

    Return the version of the changes of `standby` then, and how many clients these are.
    """
    changes = t.SHARE_HOLDERS_CHANGES
    table, version = standby.located(changes), standby.tables[changes.name]
    schema, folder = arrow_schema(changes), f"{version + 1:08d}-{run}"
    added, count = [], 0
    columns = (
        "COALESCE(o.client, n.client) AS client, n.positions AS positions,"
        " COALESCE(o.shard, n.shard) AS shard"
    )
    for shard in range(last.shards):
        sql = holders_sql(columns, f"shard = {shard}")
        sql += " SELECT client, positions, shard FROM compared WHERE difference <> 'equal'"
        batches = stream(tables, sql, both(last, standby, t.SHARE_HOLDERS))
        parts = (_rows(batch, last.number + 1, schema) for batch in batches if batch.num_rows)
        path = f"{folder}/{shard}.parquet"
        made, rows = parquet_files.write_parts(tables, table, parts, path)
        added += [made] if made else []
        count += rows
    return table_log.commit(tables, table, version, added), count


def _rows(batch: pa.RecordBatch, number: int, schema: pa.Schema) -> pa.Table:
    """Return rows of the table of holders; who holds nothing there has an empty list."""
    type_ = schema.field("positions").type
    lists = batch["positions"].cast(type_).to_pylist()
    positions = pa.array([ids or [] for ids in lists], type_)
    columns = {"client": batch["client"], "positions": positions, "shard": batch["shard"]}
    columns |= {"snapshot": pa.array([number] * batch.num_rows)}
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)
