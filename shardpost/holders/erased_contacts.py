"""The contact of a client in the tables of the newest snapshot, and how it leaves them; no JVM.

Rows stay, with key, coordinates and kind, so that every fold, and every answer that needs no
contact, is what it was. The versions that older snapshots have are not read any more, and the
maintenance removes their files after an hour (`Snapshot.erased_in`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.dead_letters.model import letters
from shardpost.delta import snapshots
from shardpost.delta.erased_rows import Mask, files_with_contact, without_contact
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders import rejected_letters
from shardpost.holders.inputs import input_topics
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.model.tables import CLIENT_EVENTS, CLIENTS, OF_CONTACTS, REJECTED_RECORDS
from shardpost.holders.rewritten_snapshot import commit_rewritten
from shardpost.locks import exclusive
from shardpost.settings import Settings

# {table: {path: rows with the contact}}
Found = Mapping[Table, Mapping[str, int]]


def rows_with_contact(settings: Settings, client: str) -> dict[str, int]:
    """Return {table: rows} of the newest snapshot that have the contact; {} before the first."""
    snapshot = snapshots.newest(settings)
    return {} if snapshot is None else _counts(_find(settings, snapshot, client))


def erase_contact(settings: Settings, client: str, at: datetime) -> dict[str, int]:
    """Commit a snapshot without the contact, if there is any; return the rows that had it.

    Under the lock of the compaction, after any that is running: `lock_wait` at most. Letters of
    rejected records are sent first, since they are made of what goes.
    """
    name = COMPACT_POSITIONS.name
    with exclusive(settings, name, name, wait=settings.lock_wait):
        last = snapshots.newest(settings)
        found = {} if last is None else _find(settings, last, client)
        if last is None or not any(found.values()):
            return {}
        if found[REJECTED_RECORDS]:
            rejected_letters.send(settings, last)
        masks = _masks(settings, client)
        rewrites = {
            table: dict.fromkeys(files, without_contact(table, masks[table]))
            for table, files in found.items()
        }
        commit_rewritten(settings, last, rewrites, at, erased_in=last.number + 1)
    return _counts(found)


def _find(settings: Settings, snapshot: Snapshot, client: str) -> Found:
    masks = _masks(settings, client)
    keys: dict[Table, str | bytes] = {
        CLIENTS: client,
        CLIENT_EVENTS: client,
        REJECTED_RECORDS: client.encode(),
    }
    versions = {table: snapshot.tables.get(table.name) for table in OF_CONTACTS}
    return {
        table: files_with_contact(
            settings, snapshot.located(table), version, ("key", keys[table]), masks[table]
        )
        if version is not None
        else {}
        for table, version in versions.items()
    }


def _counts(found: Found) -> dict[str, int]:
    return {table.name: sum(files.values()) for table, files in found.items() if files}


def _masks(settings: Settings, client: str) -> dict[Table, Mask]:
    """Return what tells which rows are the client's."""
    topic = settings.topic("clients")
    others = {*input_topics(settings)} - {topic}
    return {
        CLIENTS: partial(_of_key, client),
        CLIENT_EVENTS: partial(_of_key, client),
        REJECTED_RECORDS: partial(_rejected, client.encode(), topic, others),
    }


def _of_key(client: str, rows: pa.Table) -> pa.Array:
    return pc.equal(rows["key"], client)


def _rejected(key: bytes, topic: str, other_inputs: set[str], rows: pa.Table) -> pa.Array:
    """Return which records have the client's key, in the topic or among retries of the topic."""
    found = [False] * rows.num_rows
    for number in pc.indices_nonzero(pc.equal(rows["key"], key)).to_pylist():
        name = rows["topic"][number].as_py()
        headers = rows["headers"][number].as_py() or []
        is_retry = name not in other_inputs and _origin(headers) == topic.encode()
        found[number] = name == topic or is_retry
    return pa.array(found, pa.bool_())


def _origin(headers: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Return the origin topic that the headers of a retry say."""
    own = (header["value"] for header in headers if header["key"] == letters.ORIGIN_TOPIC)
    return next(iter([*own][-1:]), None)
