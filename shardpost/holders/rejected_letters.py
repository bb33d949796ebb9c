"""Sending what a compaction rejected to `dead-letters`, each record once.

Up to which snapshot that is done stands in Kafka, as an offset that is committed in the very
transaction of the letters: a run that was killed at any point sends nothing twice. Kafka forgets
offsets after some days, and a letter that is sent again would bring back what a person discarded:
so the number is kept in the log of the table `snapshots` as well, once the letters are there. Its
log is also what tells, without Kafka, that there is nothing to send.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from deltalake import DeltaTable

from shardpost.dead_letters.model import letters
from shardpost.delta import table_log
from shardpost.delta.query import path_of, query, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.holders.inputs import retry_topics
from shardpost.holders.model.tables import REJECTED_RECORDS
from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing, Record
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.topics.declared import LETTER_BYTES, PASSED_ON_BYTES, STORED_BYTES

log = logging.getLogger(__name__)

GROUP = "shardpost-rejected"
# Delta's application transaction that says up to which snapshot letters were sent.
SENT = "rejected letters"
# One transaction, however many there are: the most that a broker allows by default.
LONGEST_MS = 900_000


def send(settings: Settings, snapshot: Snapshot) -> int:
    """Send what was rejected since it was last done, up to a snapshot; return how many letters.

    FencedError if a newer run has taken over.
    """
    if not snapshot.counts.rejected:
        return 0
    snapshots = DeltaTable(path_of(settings, SNAPSHOTS))
    sent = snapshots.transaction_version(SENT) or 0
    waiting = _count(settings, snapshot, sent)
    if not waiting:
        return 0
    tables = str(snapshots.metadata().id)
    count = _send(settings, snapshot, sent, tables, is_long=waiting > settings.retry_batch)
    step("letters sent")
    table_log.commit(settings, SNAPSHOTS, snapshots.version(), (), (), {SENT: snapshot.number})
    return count


def _send(settings: Settings, snapshot: Snapshot, sent: int, tables: str, *, is_long: bool) -> int:
    """Fence, then read how far it was done, then write the letters with the new number.

    `tables` tells these tables from others that are made of the same topics.
    """
    topic = settings.topic("dead-letters")
    more = {"transaction.timeout.ms": LONGEST_MS} if is_long else {}
    writer = Transactions(
        settings,
        f"{topic}/rejected/{tables}",
        fenced=f"fenced: a newer compaction sends what was rejected to {topic}; this one stops",
        failed=f"{topic}: what was rejected cannot be sent ({{reason}}); the next compaction sends"
        " it",
        **{"message.max.bytes": PASSED_ON_BYTES} | more,
    )
    reader = clients.consumer(settings, f"{GROUP}-{tables}")
    with closing(reader), closing(writer):
        writer.open()
        since = max(sent, offsets.committed(settings, reader, TopicPartition(topic, 0)) or 0)
        if since >= snapshot.number:
            return 0
        found = _Letters(settings, snapshot, since)
        writer.write(found, Consumed(reader, TopicPartition(topic, 0), snapshot.number))
    log.info("%s: %d letters of snapshots %d to %d", topic, found.count, since + 1, snapshot.number)
    return found.count


class _Letters:
    """Letters of what was rejected, read anew whenever a transaction has to be tried again."""

    def __init__(self, settings: Settings, snapshot: Snapshot, since: int) -> None:
        self._settings, self._snapshot, self._since = settings, snapshot, since
        self._retries = frozenset(retry_topics(settings))
        topic = settings.topic("dead-letters")
        self._partitions = offsets.partition_counts(settings, [topic])[topic]
        self.count = 0

    def __iter__(self) -> Iterator[Outgoing]:
        self.count = 0
        for row in _rows(self._settings, self._snapshot, self._since):
            record = _record(row)
            if _size(record) > STORED_BYTES - LETTER_BYTES:
                log.warning(
                    "%s: too large for a letter (%d bytes): only the table rejected_records has it",
                    *(record.coordinates, _size(record)),
                )
                continue
            self.count += 1
            yield self._letter(record, row["reason"])
        step("letters written")

    def _letter(self, record: Record, reason: str) -> Outgoing:
        error, at = f"{letters.UNDECODABLE}: {reason}", self._snapshot.committed_at
        letter = letters.failure(record, letters.error_text(error), at, self._retries)
        return letters.as_record(
            letter, record, self._settings.topic("dead-letters"), self._partitions
        )


def _count(settings: Settings, snapshot: Snapshot, since: int) -> int:
    sql = f"SELECT count(*) AS n FROM rejected_records WHERE snapshot > {since}"  # noqa: S608
    found = query(settings, sql, {REJECTED_RECORDS: snapshot.tables[REJECTED_RECORDS.name]})
    return int(found["n"][0].as_py())


def _rows(settings: Settings, snapshot: Snapshot, since: int) -> Iterator[dict[str, Any]]:
    sql = (
        'SELECT topic, "partition", "offset", key, value, headers, reason'  # noqa: S608 - a number
        f" FROM rejected_records WHERE snapshot > {since}"
    )
    version = {REJECTED_RECORDS: snapshot.tables[REJECTED_RECORDS.name]}
    for batch in stream(settings, sql, version):
        for number in range(batch.num_rows):  # one by one: values may be large
            yield {name: batch[name][number].as_py() for name in batch.schema.names}


def _record(row: dict[str, Any]) -> Record:
    """Return a rejected record as it was read, but for its timestamp, which no letter has."""
    headers = [(header["key"], header["value"]) for header in row["headers"] or []]
    place = row["topic"], row["partition"], row["offset"]
    return Record(row["key"], row["value"], headers, 0, *place)


def _size(record: Record) -> int:
    """Return the bytes of key, value, and the headers that a letter keeps of them."""
    own = sum(len(name) + len(value or b"") for name, value in record.headers)
    return 2 * len(record.key or b"") + len(record.value or b"") + min(own, letters.HEADERS_BYTES)
