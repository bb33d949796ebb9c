"""Sending the records that a compaction rejected to `dead-letters`, each once.

They go in bounded transactions, in the order of snapshots and coordinates, and each transaction
holds how far it came: the snapshot up to which all were sent, as an offset of a group, and the
place of the last letter after it, as its metadata. So a run that is killed at any point sends
nothing twice. Kafka deletes offsets after some days, and a letter that is sent again would bring
back one that a person has discarded: so the number is then kept in the log of the table `snapshots`
as well. That log also shows, without Kafka, that there is nothing to send. And it counts where
tables were restored, and the snapshot that was sent is not in them: what was sent since is sent
again, as the same letters.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from shardpost.dead_letters.model import letters
from shardpost.delta import storage
from shardpost.delta.query import at_snapshot, has_rows, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS, note_transaction, runs_of
from shardpost.holders.inputs import retry_topics
from shardpost.holders.model.published import Place, PlaceRange, SnapshotRun, place_ranges
from shardpost.holders.model.view_tables import REJECTED_RECORDS
from shardpost.installation import Installation
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.clients import GroupConsumer
from shardpost.kafka.records import Outgoing, Record, TopicPartition, batch_bytes
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.logs import step
from shardpost.topics import guards
from shardpost.wording import counted

log = logging.getLogger(__name__)

GROUP = "shardpost-rejected"
# The Delta application transaction whose version is the snapshot up to which letters were sent.
SENT = "rejected letters"
# Rows that are decoded together: each may have a megabyte.
ROWS_AT_ONCE = 128
BATCH_ROWS = 10_000  # of numbers alone


def send(installation: Installation, snapshot: Snapshot, *, mark: bool = False) -> int:
    """Send what was rejected since the last time, up to a snapshot; return how many letters.

    Where nothing was, it is not noted, unless `mark`. FencedError if a newer run has taken over.
    """
    return _Sending(installation, snapshot).send(mark=mark)


def group_of(tables: str) -> str:
    """Return the group that has how far letters of tables were sent, by the id of `snapshots`."""
    return f"{GROUP}-{tables}"


class _Sent(NamedTuple):
    """How far letters were sent: all up to a snapshot, and those up to a place after it."""

    snapshot: int
    after: Place | None = None

    def metadata(self, of: Snapshot) -> str:
        """Return what is committed with the number, where those of that snapshot were sent."""
        form = {"of": of.number, "run": of.run, "after": self.after}
        return json.dumps({name: value for name, value in form.items() if value is not None})


def committed_sent(committed: offsets.CommittedOffset) -> tuple[_Sent, SnapshotRun] | None:
    """Return how far letters were sent, and for which snapshot, from the group's offset.

    None of an offset that another program committed, with metadata of its own.
    """
    try:
        form = json.loads(committed.metadata or "{}")
        after = Place.of(*form["after"]) if "after" in form else None
        return _Sent(committed.offset, after), SnapshotRun.of(form["of"], form["run"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class _Sending:
    """Sends the rejected records of a snapshot and of those before it.

    The id of the table `snapshots` identifies its tables: others may be made of the same topics.
    """

    def __init__(self, installation: Installation, snapshot: Snapshot) -> None:
        self._installation, self._snapshot = installation, snapshot
        self._topic = installation.kafka.topic("dead-letters")
        self._retries = frozenset(retry_topics(installation))

    def send(self, *, mark: bool) -> int:
        table = storage.opened(self._installation.tables, SNAPSHOTS)
        sent = table.transaction_version(SENT) or 0
        later = f"snapshot > {sent}"
        any_is_left = has_rows(self._installation.tables, self._snapshot, REJECTED_RECORDS, later)
        count = 0
        if any_is_left:
            count = self._send_after(sent, str(table.metadata().id))
            step("letters sent")
        if any_is_left or (mark and sent < self._snapshot.number):
            note_transaction(self._installation.tables, SENT, self._snapshot.number)
        return count

    def _send_after(self, sent: int, tables: str) -> int:
        """Fence older runs, then read how far they sent, then send the rest, batch by batch."""
        kafka, topic, count = self._installation.kafka, self._topic, 0
        self._partitions = topic_metadata.partition_counts(kafka, [topic])[topic]
        self._config = topic_metadata.topic_config(kafka, topic)
        place, reader = TopicPartition(topic, 0), kafka.consumer(group_of(tables))
        with closing(reader), closing(self._writer(tables)) as writer:
            self._installation.tables.require_held()  # without the lock it would fence its holder
            writer.open()
            before = self._sent(reader, sent)
            if before.snapshot >= self._snapshot.number:
                return 0
            for range_ in self._ranges(before):
                written = [self._letter(row) for row in self._rows(range_)]
                after = _Sent(before.snapshot, range_.last)
                if range_.is_last:
                    after = _Sent(self._snapshot.number)
                metadata = after.metadata(self._snapshot)
                consumed = Consumed(reader, place, after.snapshot, metadata)
                writer.write(written, consumed, check=partial(step, "letters written"))
                count += len(written)
                step("letters committed")
        number = self._snapshot.number
        log.info("%s: %s, up to snapshot %d", self._topic, counted(count, "letter"), number)
        return count

    def _writer(self, tables: str) -> Transactions:
        topic = self._topic
        return Transactions(
            self._installation.kafka,
            f"{topic}/rejected/{tables}",
            may_write=partial(guards.require_owner, self._installation),
            fenced=f"fenced: a newer compaction sends rejected records to {topic}; this"
            " compaction stops",
            failed=f"{topic}: could not send rejected records ({{reason}}); the next compaction"
            " sends them",
            **topic_metadata.producer_config(self._config),
        )

    def _sent(self, reader: GroupConsumer, sent: int) -> _Sent:
        """Return how far letters were sent, by Kafka or else by the table.

        That is where Kafka has forgotten, or names a snapshot that is gone: tables were restored.
        """
        place = TopicPartition(self._topic, 0)
        offset = offsets.committed_offsets(self._installation.kafka, reader, [place]).get(place)
        if offset is None or offset.offset < sent:
            return _Sent(sent)
        known = committed_sent(offset)
        if known is None:
            log.warning(
                "%s: its committed position is not ours: sending all after snapshot %d again;"
                " letters already sent do not change",
                *(place, sent),
            )
            return _Sent(sent)
        committed, of = known
        if not of.is_in(runs_of(self._installation.tables, self._snapshot)):
            log.warning(
                "%s: letters of snapshot %d were sent, but it is not in these tables (they were"
                " restored): sending all after snapshot %d; letters already sent do not change",
                *(self._topic, of.number, sent),
            )
            return _Sent(sent)
        return committed

    def _ranges(self, sent: _Sent) -> Iterator[PlaceRange]:
        """Yield the ranges of what is to be sent, each small enough for one transaction.

        Sorted here: DataFusion takes long to sort what it is given in very many small batches.
        """
        condition = sent.after.sql_of_those(">") if sent.after else f"snapshot > {sent.snapshot}"
        sql = (
            'SELECT snapshot, topic, "partition", "offset",'  # noqa: S608 - our own
            f" {_bytes_of('key')} + {_bytes_of('value')} AS bytes,"
            " coalesce(cardinality(headers), 0) AS headers"
            f" FROM rejected_records WHERE {condition}"
        )
        at = at_snapshot(self._snapshot, REJECTED_RECORDS)
        batches = [
            batch.set_column(1, "topic", batch["topic"].cast(pa.string()))
            for batch in stream(self._installation.tables, sql, at, ROWS_AT_ONCE)
        ]
        if not batches:
            return iter(())
        ordered = pa.Table.from_batches(batches).sort_by(
            [(name, "ascending") for name in Place._fields]
        )
        rows = (
            row
            for batch in ordered.to_batches(BATCH_ROWS)
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        return place_ranges((Place(*row[:4]), row[4], row[5]) for row in rows)

    def _rows(self, range_: PlaceRange) -> Iterator[dict[str, Any]]:
        """Yield the rows of a range, in order."""
        sql = (
            'SELECT topic, "partition", "offset", CAST("timestamp" AS BIGINT) AS at,'  # noqa: S608
            " key, value, headers, reason"
            f" FROM rejected_records WHERE {range_.sql()}"
            ' ORDER BY snapshot, topic, "partition", "offset"'
        )
        at = at_snapshot(self._snapshot, REJECTED_RECORDS)
        for batch in stream(self._installation.tables, sql, at, ROWS_AT_ONCE):
            for number in range(batch.num_rows):  # one at a time: values may be large
                yield {name: batch[name][number].as_py() for name in batch.schema.names}

    def _letter(self, row: dict[str, Any]) -> Outgoing:
        record = Record(
            *(row["key"], row["value"]),
            [(header["key"], header["value"]) for header in row["headers"] or []],
            row["at"] // 1000,  # microseconds
            *(row["topic"], row["partition"], row["offset"]),
        )
        error, at = f"{letters.UNDECODABLE}: {row['reason']}", self._snapshot.committed_at
        letter = letters.failure(record, letters.error_text(error), at, self._retries)
        made = letters.as_record(letter, record, self._topic, self._partitions)
        fitting = letters.fitting(made, topic_metadata.largest_batch(self._config))
        if fitting is not made:
            log.warning(
                "%s: too large for a letter (%d bytes): only the table rejected_records has its"
                " value",
                *(record.coordinates, batch_bytes(made)),
            )
        return fitting


def _bytes_of(column: str) -> str:
    """Return the SQL of the length of a binary column; octet_length takes text only."""
    return f"coalesce(octet_length(encode({column}, 'hex')) / 2, 0)"
