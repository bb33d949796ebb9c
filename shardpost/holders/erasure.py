"""The contact of a client in the tables of snapshots, and how it leaves them; no JVM.

Rows stay, with key, coordinates and kind, so that every fold, and every answer that needs no
contact, is what it was. The versions that older snapshots have are not read any more, and the
maintenance removes their files after an hour (`Snapshot.erased_in`).
"""

from collections.abc import Collection
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.dead_letters.model import letters
from shardpost.delta import snapshots
from shardpost.delta.parquet_files import Change
from shardpost.delta.rewritten_files import Mask, files_with_contact, without_contact
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.holders import rejected_letters
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.folding import Folding, Rewrites, commit_rewritten
from shardpost.holders.inputs import input_topics
from shardpost.holders.model import view_tables
from shardpost.installation import Installation
from shardpost.locks.locks import after_running

# {table: {path: how its rows change}}, and {folder of a table: rows with the contact}
Erasable = tuple[Rewrites, dict[str, int]]


def rows_with_contact(installation: Installation, client: str) -> dict[str, int]:
    """Return {folder: rows} that have the contact, of what may be read; {} before the first."""
    counts: dict[str, int] = {}
    for view, tables in reversed(_readable(installation.tables)):
        counts |= find_contact(installation, view, client, tables)[1]
    return counts


def erase_contact(installation: Installation, client: str, at: datetime) -> dict[str, int]:
    """Commit a snapshot without the contact, if there is any; return the rows that had it.

    Those of older snapshots whose tables are in other folders are not read any more from then on,
    as all versions before. Under the lock of the compaction, after any that is running: `lock_wait`
    at most. Letters of rejected records are sent first, since they are made of what goes.
    """
    with after_running(installation.files, COMPACT_POSITIONS.name):
        counts = rows_with_contact(installation, client)
        if counts:
            last, own = snapshots.current(installation.tables), [view_tables.CLIENTS.name]
            # A fold would be newer than the files that the snapshot names.
            last = Folding(installation.tables, last, own).fold(at, own)
            rewrites, _ = find_contact(installation, last, client, view_tables.OF_CONTACTS)
            if view_tables.REJECTED_RECORDS in rewrites:
                rejected_letters.send(installation, last)
            commit_rewritten(installation.tables, last, rewrites, at, erased_in=last.number + 1)
    return counts


def find_contact(
    installation: Installation, view: Snapshot, client: str, tables: Collection[Table]
) -> Erasable:
    """Return how the contact leaves some tables of a view, and how many rows have it."""
    topic = installation.kafka.topic("clients")
    others = {*input_topics(installation.kafka)} - {topic}
    of_key: tuple[str, Mask] = client, lambda rows: pc.equal(rows["key"], client)
    rejected = client.encode(), partial(_rejected, client.encode(), topic, others)
    # The client's key in each table, and what tells which rows with it are the client's.
    own: dict[Table, tuple[str | bytes, Mask]] = {
        view_tables.CLIENTS: of_key,
        view_tables.CLIENT_EVENTS: of_key,
        view_tables.REJECTED_RECORDS: rejected,
    }
    rewrites: dict[Table, dict[str, Change]] = {}
    counts: dict[str, int] = {}
    for table in tables:
        there, version = view.located(table), view.tables.get(table.name)
        if version is None:
            continue
        key, mask = own[table]
        if files := files_with_contact(installation.tables, there, version, ("key", key), mask):
            rewrites[table] = dict.fromkeys(files, partial(without_contact, table, mask))
            counts[there.path] = sum(files.values())
    return rewrites, counts


def _readable(tables: Tables) -> list[tuple[Snapshot, list[Table]]]:
    """Return the newest snapshot, and others that have tables with contacts in other folders.

    Of each folder the newest; without those before the last client was erased, which nobody reads.
    """
    every = snapshots.newest_of_folders(tables)
    if not every:
        return []
    last = every[-1]
    since = [view for view in every if view.number >= (last.erased_in or 0)]
    views = [(last, [*view_tables.OF_CONTACTS])]
    for table in view_tables.OF_CONTACTS:
        newest_of = {view.located(table).path: view for view in since}
        del newest_of[last.located(table).path]
        views += [(view, [table]) for view in newest_of.values()]
    return views


def _rejected(key: bytes, topic: str, other_inputs: set[str], rows: pa.Table) -> pa.Array:
    """Return which records have the client's key, in the topic or among retries of the topic."""
    is_own = [False] * rows.num_rows
    for number in pc.indices_nonzero(pc.equal(rows["key"], key)).to_pylist():
        name = rows["topic"][number].as_py()
        headers = rows["headers"][number].as_py() or []
        origins = [header["value"] for header in headers if header["key"] == letters.ORIGIN_TOPIC]
        is_retry = name not in other_inputs and origins[-1:] == [topic.encode()]
        is_own[number] = name == topic or is_retry
    return pa.array(is_own, pa.bool_())
