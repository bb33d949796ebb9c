"""The records of `share-holders`: a client's list, its length where it is too large, or null."""

import json
import logging
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from shardpost.delta.query import at_snapshot, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing, batch_bytes
from shardpost.printable import one_line
from shardpost.settings import Settings

log = logging.getLogger(__name__)

# Of one query at a time, however long their lists are: a list may have a million ids.
ROWS_AT_ONCE = 8
IDS_AT_ONCE = 50_000
MAX_NAMED = 1_000
NAMED_CHARACTERS = 200


class HolderRecords:
    """The records of the holders of one partition that changed after a snapshot.

    Where a list would make a record larger than `largest` (the bytes of its batch), the record has
    `"Positions":null` and `"Count"`; where not even that fits, for the client's id, there is none.
    Both are named in the log, and counted in `too_large`. The size is that of the uncompressed
    record, so that the same list is published the same way whoever compresses it.
    """

    def __init__(
        self, settings: Settings, snapshot: Snapshot, partition: TopicPartition, largest: int
    ) -> None:
        self._settings, self._snapshot = settings, snapshot
        self._partition, self._largest = partition, largest
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
        yield from self._tombstones(there)

    def _tombstones(self, keys: set[bytes]) -> Iterator[Outgoing]:
        for key in sorted(keys):
            record = self._fitting(key, None)
            if record is None:  # its limit was lowered since
                log.warning("%s: a key of %d bytes stays: too large", self._partition, len(key))
            else:
                self.count += 1
                yield record

    def _changed(self, number: int) -> Iterator[tuple[str, pa.Array]]:
        sql = (
            "SELECT client, positions FROM share_holders"  # noqa: S608 - numbers
            f" WHERE shard = {self._partition.partition} AND snapshot > {number}"
        )
        at = at_snapshot(self._snapshot, SHARE_HOLDERS)
        for batch in stream(self._settings, sql, at, rows_at_once=ROWS_AT_ONCE):
            yield from _rows(batch)

    def _whole(self, client: str, ids: pa.Array) -> Outgoing | None:
        """Return the record with the whole list; None if it is too large."""
        if not len(ids):
            return self._fitting(client.encode(), None)
        start = f'{{"Client":{_json(client)},"Positions":['.encode()
        parts, size = [], len(start)
        for first in range(0, len(ids), IDS_AT_ONCE):
            part = _json(ids[first : first + IDS_AT_ONCE].to_pylist())[1:-1].encode()
            size += len(part)
            if size > self._largest:
                return None
            parts.append(part)
        return self._fitting(client.encode(), start + b",".join(parts) + b"]}")

    def _count_only(self, client: str, count: int) -> Outgoing | None:
        """Return the record with the length of the list; None if not even that fits."""
        form = _json({"Client": client, "Positions": None, "Count": count})
        record = self._fitting(client.encode(), form.encode())
        self.too_large += 1
        if self.too_large <= MAX_NAMED:
            self._log(client, count, "only its Count is published" if record else "not published")
        return record

    def _fitting(self, key: bytes, value: bytes | None) -> Outgoing | None:
        """Return the record; None if it is too large."""
        topic, partition = self._partition
        record = Outgoing(topic, key, value, [], partition)
        return record if batch_bytes(record) <= self._largest else None

    def _log(self, client: str, count: int, done: str) -> None:
        name = client if len(client) <= NAMED_CHARACTERS else f"{client[:NAMED_CHARACTERS]}…"
        log.warning(
            "%s: client %s: its list of %d positions is too large for a record of %d bytes: %s",
            *(self._partition, one_line(name), count, self._largest, done),
        )


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield each client and its ids, not in Python yet."""
    lists = batch["positions"]
    ids = lists.values
    for client, (start, end) in zip(
        batch["client"].to_pylist(), pairwise(lists.offsets.to_pylist()), strict=True
    ):
        yield client, ids[start:end]


def _json(form: object) -> str:
    return json.dumps(form, ensure_ascii=False, separators=(",", ":"))
