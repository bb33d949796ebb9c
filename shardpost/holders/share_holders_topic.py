"""The topic `share-holders`: the records made for it, and what its partitions hold.

A record is a client's list, or its length if the list is too large, or null.

Records are missing or differ if tables were restored from a copy, if Kafka deleted some (by
`cleanup.policy=delete`, or by hand) or lost the end of a partition, or if another program wrote to
the topic. Then all holders of the partition are published again.

Kafka stores which snapshot was published, and whose letters were sent. These are compared with the
run that made the snapshot, so its row must be kept.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.query import at_snapshot, rows, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.errors import one_line
from shardpost.holders import rejected_letters
from shardpost.holders.model.published import Published, SnapshotRun, Watermarks
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.kafka import clients, offsets, topic_metadata
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, batch_bytes
from shardpost.settings import Settings

if TYPE_CHECKING:
    from shardpost.kafka.clients import GroupConsumer

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


@dataclass(frozen=True)
class ChangedHolders:
    """The holders that changed after the snapshot `since`, of all partitions.

    `of_shard` has (snapshot, client, its ids) of each.
    """

    since: int
    of_shard: Mapping[int, Sequence[tuple[int, str, pa.Array]]]

    @classmethod
    def read(cls, settings: Settings, snapshot: Snapshot, since: int) -> "ChangedHolders | None":
        """Read them, up to that snapshot; None if they are too many to be in memory."""
        found: dict[int, list[tuple[int, str, pa.Array]]] = defaultdict(list)
        count = size = 0
        for batch in _changed_rows(settings, snapshot, since):
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


def _changed_rows(settings: Settings, snapshot: Snapshot, since: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of holders that changed after a snapshot; each client is there once."""
    table = snapshot.located(SHARE_HOLDERS)
    version = snapshot.tables[SHARE_HOLDERS.name]
    files = table_log.files_after(settings, table, version, since)
    sizes = table_log.sizes(settings, table, version)
    if since < snapshot.number - 1 or sum(sizes[path] for path in files) > READ_BYTES:
        sql = f"SELECT shard, snapshot, {_HOLDER} WHERE snapshot > {since}"
        at = at_snapshot(snapshot, SHARE_HOLDERS)
        yield from stream(settings, sql, at, rows_at_once=ROWS_AT_ONCE)
        return
    for path in files:  # of one snapshot no client has two rows
        for part in parquet_files.parts(settings, table, path):
            yield from part.filter(pc.greater(part["snapshot"], since)).to_batches()


class HolderRecords:
    """The records of the holders of one partition that changed after a snapshot.

    Where a list would make a record larger than `largest` (the bytes of its batch), the record has
    `"Positions":null` and `"Count"`; where not even that fits, for the client's id, there is none.
    Both are named in the log, and counted in `too_large`. The size is that of the uncompressed
    record, so that the same list is published the same way whoever compresses it.
    """

    def __init__(
        self,
        settings: Settings,
        snapshot: Snapshot,
        partition: TopicPartition,
        largest: int,
        known: ChangedHolders | None = None,
    ) -> None:
        self._settings, self._snapshot = settings, snapshot
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
        yield from self._tombstones(there)

    def _tombstones(self, keys: set[bytes]) -> Iterator[Outgoing]:
        for key in sorted(keys):
            record = self._fitting(key, None)
            if record is None:  # its limit was lowered since
                log.warning(
                    "%s: a key of %d bytes is not removed: too large", self._partition, len(key)
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


# `json.dumps` makes an encoder for each of millions of clients.
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


PUBLISH_GROUP = "shardpost-publish"


@dataclass(frozen=True)
class PublishedPartition:
    """A partition, what was published to it, and why that is not what it holds; None if it is."""

    partition: TopicPartition
    published: Published
    now: Watermarks
    wrong: str | None

    def since(self, largest: int) -> int:
        """Return the number of the snapshot whose later changes are to be published; 0: all."""
        return 0 if self.wrong else self.published.since(largest)

    def has_all_to_come(self, largest: int) -> bool:
        """Tell whether all is to be published to it, and it has records already.

        They may be of clients that the tables do not have.
        """
        return not self.since(largest) and self.now.low < self.now.high


def every_partition(settings: Settings, topic: str) -> list[TopicPartition]:
    """Return the partitions of the topic."""
    count = topic_metadata.partition_counts(settings, [topic])[topic]
    return [TopicPartition(topic, number) for number in range(count)]


def published_partitions(
    settings: Settings,
    reader: "GroupConsumer",
    partitions: Sequence[TopicPartition],
    runs: Mapping[int, str],
) -> list[PublishedPartition]:
    """Return partitions as the consumer's group has them; {number: run} are the tables' snapshots.

    Where older writers are not fenced, what is published meanwhile is taken for that of others.
    """
    published = _published(settings, reader, partitions)
    now = offsets.watermarks_of(settings, partitions, committed=False)
    return [
        _inspected(settings, partition, noted, now[partition], runs)
        for partition, noted in published.items()
    ]


def _all_published(settings: Settings, topic: str) -> dict[TopicPartition, Published]:
    """Return what is noted of each partition of the topic, in their order."""
    with closing(clients.consumer(settings, PUBLISH_GROUP)) as reader:
        return _published(settings, reader, every_partition(settings, topic))


def _published(
    settings: Settings, reader: "GroupConsumer", partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Published]:
    """Return what the consumer's group has noted of each partition."""
    committed = offsets.committed_offsets(settings, reader, partitions)
    return {
        partition: Published.of(committed[partition].metadata if partition in committed else None)
        for partition in partitions
    }


def _inspected(
    settings: Settings,
    partition: TopicPartition,
    published: Published,
    now: tuple[int, int],
    runs: Mapping[int, str],
) -> PublishedPartition:
    marks = Watermarks(*now)
    wrong = published.what_is_wrong(runs, marks)
    wrong = wrong or _written_by_others(settings, partition, published, marks)
    return PublishedPartition(partition, published, marks, wrong)


def _written_by_others(
    settings: Settings, partition: TopicPartition, published: Published, now: Watermarks
) -> str | None:
    """Return that there is a committed record after what was published; None if there is not.

    Aborted transactions are no records; most often there is nothing at all, and nothing is read.
    """
    if not published.at.number or now.high <= published.end:
        return None
    first = next(read_to_end(settings, partition, start=published.end, committed=True), None)
    if first is None:
        return None
    return f"another program has written to it (the record at offset {first.offset()})"


def keys_with_values(settings: Settings, partition: TopicPartition) -> set[bytes]:
    """Return the keys of a partition whose last committed record is no tombstone.

    The whole partition is read; in memory are only the keys.
    """
    keys: set[bytes] = set()
    for message in read_to_end(settings, partition, committed=True):
        key = message.key()
        if key is not None:
            (keys.discard if message.value() is None else keys.add)(key)
    return keys


@dataclass(frozen=True)
class LargeList:
    """A list that is too large for a record of `largest` bytes: only its length is published."""

    client: str
    positions: int
    largest: int


def too_large_lists(settings: Settings, snapshot: Snapshot) -> list[LargeList]:
    """Return the lists of a snapshot that are too large for the topic, the longest first.

    Only partitions are looked at in which some were, by what is noted in Kafka. Ids are taken as if
    JSON escaped nothing in them.
    """
    topic = settings.topic("share-holders")
    published = _all_published(settings, topic)
    empty = Outgoing(topic, b"", b'{"Client":"","Positions":[""]}', [])
    limits = {
        place.partition: noted.largest
        for place, noted in published.items()
        if noted.largest is not None
    }
    found: list[LargeList] = []
    for shard, largest in limits.items():
        sql = (
            "SELECT client, array_length(positions) AS count FROM share_holders"  # noqa: S608 - numbers
            f" WHERE shard = {shard} AND array_length(positions) > 0"
            " AND octet_length(array_to_string(positions, '\",\"')) + 2 * octet_length(client)"
            f" > {largest - batch_bytes(empty)}"
        )
        listed = rows(settings, sql, at_snapshot(snapshot, SHARE_HOLDERS))
        found += [LargeList(row["client"], row["count"], largest) for row in listed]
    return sorted(found, key=lambda one: (-one.positions, one.client))


def noted_snapshots(settings: Settings) -> set[int]:
    """Return their numbers; ShardpostError if Kafka does not answer."""
    published = _all_published(settings, settings.topic("share-holders")).values()
    runs = [run for noted in published for run in (noted.at, noted.partly)]
    runs += _noted_by_letters(settings)
    return {run.number for run in runs if run is not None and run.number}


def _noted_by_letters(settings: Settings) -> list[SnapshotRun]:
    tables = str(storage.opened(settings, SNAPSHOTS).metadata().id)
    group = rejected_letters.group_of(tables)
    place = TopicPartition(settings.topic("dead-letters"), 0)
    with closing(clients.consumer(settings, group)) as reader:
        offset = offsets.committed_offsets(settings, reader, [place]).get(place)
    known = offset and rejected_letters.committed_sent(offset)
    return [known[1]] if known else []
