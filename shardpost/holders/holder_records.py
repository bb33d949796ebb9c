"""The records of `share-holders`: a changed list, its length if that is too large, or null."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, storage
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import at_snapshot, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import shown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import SHARE_HOLDERS, SHARE_HOLDERS_CHANGES
from shardpost.kafka.records import Header, Outgoing, TopicPartition, batch_bytes

log = logging.getLogger(__name__)

# Of one query at a time, however long their lists are: a list may have a million ids.
ROWS_AT_ONCE = 8
IDS_AT_ONCE = 50_000
MAX_NAMED = 1_000
NAMED_CHARACTERS = 200


_HOLDER = "client, positions FROM share_holders"
# Of so many holders that changed, and so many bytes of their lists, all are read at once.
MOST_AT_ONCE = 20_000
BYTES_AT_ONCE = 64 << 20
# Of files of so many bytes a query would take longer to plan than to read them.
READ_BYTES = 4 << 20
_CHANGED = pa.schema(
    [
        arrow_schema(SHARE_HOLDERS).field(name)
        for name in ("shard", "snapshot", "client", "positions")
    ]
)


@dataclass(frozen=True)
class ChangedHolders:
    """The holders that changed after `since`: {shard: (snapshot, client, its ids) of each}."""

    since: int
    of_shard: Mapping[int, Sequence[tuple[int, str, pa.Array]]]

    @classmethod
    def read(cls, tables: Tables, snapshot: Snapshot, since: int) -> "ChangedHolders | None":
        """Read them, up to that snapshot; None if they do not fit into memory."""
        found: dict[int, list[tuple[int, str, pa.Array]]] = defaultdict(list)
        count = size = 0
        for found_batch in _changed_rows(tables, snapshot, since):
            # As it comes, a batch holds on to, and counts, all that was read to find it.
            batch = found_batch.select(_CHANGED.names).cast(_CHANGED)
            count, size = count + batch.num_rows, size + batch.nbytes
            if count > MOST_AT_ONCE or size > BYTES_AT_ONCE:
                return None
            numbers = (batch[name].to_pylist() for name in ("shard", "snapshot"))
            for shard, number, (client, ids) in zip(*numbers, _rows(batch), strict=True):
                found[shard].append((number, client, ids))
        return cls(since, found)

    def of(self, shard: int, since: int) -> Iterator[tuple[str, pa.Array]]:
        """Yield each client of a partition that changed after that snapshot, and its ids."""
        for number, client, ids in self.of_shard.get(shard, ()):
            if number > since:
                yield client, ids


def _changed_rows(tables: Tables, snapshot: Snapshot, since: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of holders that changed after a snapshot; each client is there once."""
    table = snapshot.located(SHARE_HOLDERS_CHANGES)
    version = snapshot.tables.get(table.name)
    files = [] if version is None else storage.files_after(tables, table, version, since)
    # What is folded may not be among the changes any more.
    is_whole = bool(files) or snapshot.folded_up_to(SHARE_HOLDERS.name) < snapshot.number
    is_much = sum(file.size for file in files) > READ_BYTES
    if since < snapshot.number - 1 or not is_whole or is_much:
        sql = f"SELECT shard, snapshot, {_HOLDER} WHERE snapshot > {since}"
        at = at_snapshot(snapshot, SHARE_HOLDERS)
        yield from stream(tables, sql, at, rows_at_once=ROWS_AT_ONCE)
        return
    for file in files:  # of one snapshot no client has two rows
        for part in parquet_files.parts(tables, table, file.path):
            yield from part.filter(pc.greater(part["snapshot"], since)).to_batches()


def headers_of(snapshot: int, count: int) -> list[Header]:
    """Return the headers of a list of so many positions; of none, the record is a tombstone."""
    change = RecordKind.UPSERT if count else RecordKind.TOMBSTONE
    return [("snapshot", str(snapshot)), ("change", change.value), ("count", str(count))]


class HolderRecords:
    """The records of the holders of one partition that changed after a snapshot.

    Their headers say without decoding of which `snapshot` a list is, its `count` of positions, and
    which `change` the record is: an `upsert`, or a `tombstone` of a client that holds none.

    Where a list would make a record larger than `largest` (the bytes of its batch), the record has
    `"Positions":null` and `"Count"`; where not even that fits, for the client's id, there is none.
    Both are named in the log, and counted in `too_large`. The size is that of the uncompressed
    record, so that the same list is published the same way whoever compresses it.
    """

    def __init__(
        self,
        tables: Tables,
        snapshot: Snapshot,
        partition: TopicPartition,
        largest: int,
        known: ChangedHolders | None = None,
    ) -> None:
        self._tables, self._snapshot = tables, snapshot
        self._partition, self._largest, self._known = partition, largest, known
        self.count = self.too_large = 0

    def since(self, number: int, there: set[bytes]) -> Iterator[Outgoing]:
        """Yield a record for each holder that changed after the snapshot of that number.

        Then a tombstone for each key of `there` of which the table has no row, where that number
        is 0 and so all rows were seen; keys that have one are taken out of the set.
        """
        for client, ids in self._changed(number):
            there.discard(client.encode())
            record = self._whole(client, ids) or self._count_only(client, len(ids))
            if record is not None:
                self.count += 1
                yield record
        for key in sorted(there):
            record = self._fitting(key, None, 0)
            if record is None:  # its limit was lowered since
                log.warning(
                    "%s: a key of %d bytes is too large to be removed", self._partition, len(key)
                )
            else:
                self.count += 1
                yield record

    def _changed(self, number: int) -> Iterator[tuple[str, pa.Array]]:
        shard = self._partition.partition
        if self._known is not None and number >= self._known.since:
            yield from self._known.of(shard, number)
            return
        sql = f"SELECT {_HOLDER} WHERE shard = {shard} AND snapshot > {number}"
        at = at_snapshot(self._snapshot, SHARE_HOLDERS)
        for batch in stream(self._tables, sql, at, rows_at_once=ROWS_AT_ONCE):
            yield from _rows(batch)

    def _whole(self, client: str, ids: pa.Array) -> Outgoing | None:
        """Return the record with the whole list; None if it is too large."""
        if not len(ids):
            return self._fitting(client.encode(), None, 0)
        start = f'{{"Client":{_json(client)},"Positions":['.encode()
        parts, size = [], len(start)
        for first in range(0, len(ids), IDS_AT_ONCE):
            part = _json(ids[first : first + IDS_AT_ONCE].to_pylist())[1:-1].encode()
            size += len(part)
            if size > self._largest:
                return None
            parts.append(part)
        return self._fitting(client.encode(), start + b",".join(parts) + b"]}", len(ids))

    def _count_only(self, client: str, count: int) -> Outgoing | None:
        """Return the record with the length of the list; None if not even that fits."""
        form = _json({"Client": client, "Positions": None, "Count": count})
        record = self._fitting(client.encode(), form.encode(), count)
        self.too_large += 1
        if self.too_large <= MAX_NAMED:
            name = client if len(client) <= NAMED_CHARACTERS else f"{client[:NAMED_CHARACTERS]}…"
            done = "only its Count is published" if record else "not published"
            log.warning(
                "%s: client %s: its list of %d positions is too large for a record of %d bytes: %s",
                *(self._partition, shown(name), count, self._largest, done),
            )
        return record

    def _fitting(self, key: bytes, value: bytes | None, count: int) -> Outgoing | None:
        """Return the record; None if it is too large."""
        topic, partition = self._partition
        headers = headers_of(self._snapshot.number, count)
        record = Outgoing(topic, key, value, headers, partition)
        return record if batch_bytes(record) <= self._largest else None


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield each client and its ids, as Arrow values."""
    lists = batch["positions"]
    ids = lists.values
    for client, (start, end) in zip(
        batch["client"].to_pylist(), pairwise(lists.offsets.to_pylist()), strict=True
    ):
        yield client, ids[start:end]


# `json.dumps` makes an encoder for each of millions of clients.
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
