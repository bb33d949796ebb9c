"""Publishing the difference between the last published snapshot and the newest to `share-holders`.

One transactional id per partition, `<topic>/publish/<partition>`: older producers are fenced first,
only then the number of the published snapshot is read, and the difference goes out in one
transaction with the new number, which is the metadata of an offset commit. So a stopped run that
wakes up later cannot overwrite newer values.
"""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from shardpost.delta.query import at_snapshot, query, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.tables import SHARE_HOLDERS
from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.settings import Settings

log = logging.getLogger(__name__)

GROUP = "shardpost-publish"
MAX_CONCURRENT = 4
# A first publish is one transaction, however many clients there are: the most that a broker allows
# by default (transaction.max.timeout.ms). A dead producer blocks readers only until the next run.
TRANSACTION_TIMEOUT_MS = 900_000


def publish(settings: Settings, snapshot: Snapshot) -> int:
    """Publish what changed since each partition's published snapshot; return how many records.

    TransactionError if a partition could not be published; the next compaction publishes it.
    """
    published = published_numbers(settings)
    behind = [shard for shard, number in published.items() if number < snapshot.number]
    oldest = min((published[shard] for shard in behind), default=snapshot.number)
    if not behind or not _has_changes(settings, snapshot, oldest):
        return 0
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        counts = pool.map(lambda shard: _publish_shard(settings, snapshot, shard), behind)
        return sum(counts)


def published_numbers(settings: Settings) -> dict[int, int]:
    """Return {partition: number of the snapshot published last}; 0 where none was."""
    topic = settings.topic("share-holders")
    count = offsets.partition_counts(settings, [topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    with closing(clients.consumer(settings, GROUP)) as reader:
        found = offsets.committed_metadata(settings, reader, partitions)
    return {partition.partition: _number(metadata) for partition, metadata in found.items()}


def _number(metadata: str | None) -> int:
    return int(json.loads(metadata)["snapshot"]) if metadata else 0


def _has_changes(settings: Settings, snapshot: Snapshot, since: int) -> bool:
    """Tell whether any holder changed: nearly always known from the files' statistics alone."""
    sql = f"SELECT 1 FROM share_holders WHERE snapshot > {since} LIMIT 1"  # noqa: S608 - a number
    return bool(query(settings, sql, at_snapshot(snapshot, SHARE_HOLDERS)).num_rows)


def _publish_shard(settings: Settings, snapshot: Snapshot, shard: int) -> int:
    partition = TopicPartition(settings.topic("share-holders"), shard)
    problem = f"{partition}: could not publish snapshot {snapshot.number}"
    writer = Transactions(
        settings,
        f"{partition.topic}/publish/{shard}",
        fenced=f"{problem}: fenced by a newer compaction, which publishes it",
        failed=f"{problem}: {{reason}}; the next compaction publishes it",
        **{"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS},
    )
    with closing(clients.consumer(settings, GROUP)) as reader, closing(writer):
        writer.open()
        metadata = offsets.committed_metadata(settings, reader, [partition])[partition]
        since = _number(metadata)
        if since >= snapshot.number:
            return 0
        changes = _Changes(settings, snapshot, partition, since)
        number = json.dumps({"snapshot": snapshot.number})
        consumed = Consumed(reader, partition, snapshot.number, number)
        # `check` first waits until Kafka has all records: longer than a commit may take.
        writer.write(changes, consumed, check=changes.log_count)
    return changes.count


class _Changes:
    """The records of one partition, queried again whenever a transaction has to be retried."""

    def __init__(
        self, settings: Settings, snapshot: Snapshot, partition: TopicPartition, since: int
    ) -> None:
        self._settings, self._snapshot = settings, snapshot
        self._partition, self._since = partition, since
        self.count = 0

    def __iter__(self) -> Iterator[Outgoing]:
        self.count = 0
        sql = (
            "SELECT client, positions FROM share_holders"  # noqa: S608 - numbers
            f" WHERE shard = {self._partition.partition} AND snapshot > {self._since}"
        )
        for batch in stream(self._settings, sql, at_snapshot(self._snapshot, SHARE_HOLDERS)):
            self.count += batch.num_rows
            for client, positions in zip(
                batch["client"].to_pylist(), batch["positions"].to_pylist(), strict=True
            ):
                yield Outgoing(
                    self._partition.topic,
                    client.encode(),
                    _value(client, positions),
                    headers=[],
                    partition=self._partition.partition,
                )

    def log_count(self) -> None:
        """Log how many records there are."""
        log.info("%s: publishing %d records", self._partition, self.count)


def _value(client: str, positions: list[str]) -> bytes | None:
    if not positions:
        return None
    form = {"Client": client, "Positions": positions}
    return json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode()
