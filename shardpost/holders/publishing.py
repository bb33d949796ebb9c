"""Publishing the difference between the last published snapshot and the newest to `share-holders`.

One transactional id per partition, `<topic>/publish/<partition>`: older producers are fenced first,
only then the number of the published snapshot is read, and the difference goes out in bounded
transactions. Each holds how far it came, as metadata of an offset commit; the last one, the new
number. So a stopped run that wakes up later cannot overwrite newer values; and what a run that was
killed between two transactions had written is written again, since each record is a client's whole
list.

Where a partition does not hold what was published (share_holders_topic.py), all its holders are
published again, and null for the clients that it has and the tables have not.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from shardpost.delta.query import at_snapshot, query
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import combined
from shardpost.holders.model.published import Published, SnapshotRun
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.holders.share_holders_topic import (
    PUBLISH_GROUP,
    HolderRecords,
    PublishedPartition,
    keys_with_values,
    published_partition,
    published_partitions,
)
from shardpost.holders.table_commits import runs_of
from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import in_batches, queue_config
from shardpost.kafka.topic_configs import TopicConfig, largest_batch, producer_config, topic_config
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.logs import step
from shardpost.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = logging.getLogger(__name__)

MAX_CONCURRENT = 4


class Publication(NamedTuple):
    """How many records were published, and how many lists were too large for theirs.

    `is_compacted`: whether Kafka keeps the last record of each client, however old it is.
    """

    records: int = 0
    too_large: int = 0
    is_compacted: bool = True

    @property
    def needs_attention(self) -> bool:
        """Whether somebody should know."""
        return bool(self.too_large) or not self.is_compacted


@dataclass(frozen=True)
class _Publishing:
    """A snapshot that is published, and the settings of the topic that are in force."""

    settings: Settings
    snapshot: Snapshot
    topic: str
    config: TopicConfig

    @property
    def largest(self) -> int:
        return largest_batch(self.config)


def publish(settings: Settings, snapshot: Snapshot, *, mark: bool = False) -> Publication:
    """Publish what changed since each partition's published snapshot.

    Where nothing did, it stays that one, unless `mark`: then each partition is at this snapshot.
    TransactionError if a partition could not be published; the next compaction publishes it.
    """
    topic = settings.topic("share-holders")
    found = published_partitions(settings, topic, runs_of(settings, snapshot))
    publishing = _Publishing(settings, snapshot, topic, topic_config(settings, topic))
    is_compacted = _is_compacted(publishing)
    behind = _behind(publishing, found, mark=mark)
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        futures = [pool.submit(_publish_shard, publishing, one) for one in behind]
    failures = [error for future in futures if isinstance(error := future.exception(), Exception)]
    if failures:
        raise combined(failures)
    done = [future.result() for future in futures]
    records, too_large = (sum(counts) for counts in zip((0, 0), *done, strict=True))
    return Publication(records, too_large, is_compacted)


def _is_compacted(publishing: _Publishing) -> bool:
    """Tell whether the topic is compacted and no more; warn if it is not."""
    policy = publishing.config.get("cleanup.policy")
    if policy != "compact":
        log.warning(
            "topic %s: expected cleanup.policy=compact and nothing else, found %r: Kafka deletes"
            " the records of clients who hold. Set it with `kafka-configs.sh --alter --entity-type"
            " topics --entity-name %s --add-config cleanup.policy=compact`; what was deleted is"
            " published again",
            *(publishing.topic, policy, publishing.topic),
        )
    return policy == "compact"


def _behind(
    publishing: _Publishing, found: Sequence[PublishedPartition], *, mark: bool
) -> list[TopicPartition]:
    """Return the partitions to which something is to be published; with `mark` all that lag."""
    settings, snapshot, largest = publishing.settings, publishing.snapshot, publishing.largest
    behind = [one for one in found if one.since(largest) < snapshot.number]
    if not (mark or any(one.wrong or one.has_all_to_come(largest) for one in behind)):
        since = min((one.since(largest) for one in behind), default=snapshot.number)
        if not _has_changes(settings, snapshot, since):
            return []
    return [one.partition for one in behind]


def _has_changes(settings: Settings, snapshot: Snapshot, since: int) -> bool:
    """Tell whether any holder changed: nearly always known from the files' statistics alone."""
    if since >= snapshot.number:
        return False
    sql = f"SELECT 1 FROM share_holders WHERE snapshot > {since} LIMIT 1"  # noqa: S608 - a number
    return bool(query(settings, sql, at_snapshot(snapshot, SHARE_HOLDERS)).num_rows)


def _publish_shard(publishing: _Publishing, partition: TopicPartition) -> tuple[int, int]:
    """Publish one partition; return how many records, and how many lists were too large."""
    settings, snapshot = publishing.settings, publishing.snapshot
    writer = _writer(publishing, partition)
    with closing(clients.consumer(settings, PUBLISH_GROUP)) as reader, closing(writer):
        writer.open()
        # Read after that: a newer run commits its snapshot before it publishes it.
        runs = runs_of(settings, snapshot)
        before = published_partition(settings, reader, partition, runs)
        at = before.published.at
        if at.number > snapshot.number and at.is_in(runs):
            return 0, 0
        if before.since(publishing.largest) >= snapshot.number:
            return 0, 0
        if before.wrong:
            log.warning("%s: %s: publishing all again", partition, before.wrong)
        found = _write(publishing, before, reader, writer)
    log.info("%s: published %d records", partition, found.count)
    return found.count, found.too_large


def _write(
    publishing: _Publishing, before: PublishedPartition, reader: "Consumer", writer: Transactions
) -> HolderRecords:
    """Write what is to be published, in transactions; return the records."""
    settings, snapshot, largest = publishing.settings, publishing.snapshot, publishing.largest
    partition, since = before.partition, before.since(largest)
    _, first = offsets.watermarks_of(settings, partition, committed=True)
    there = keys_with_values(settings, partition) if before.has_all_to_come(largest) else set()
    found = HolderRecords(settings, snapshot, partition, largest)
    made, end = SnapshotRun(snapshot.number, snapshot.run), first
    now = before.published if since else Published(low=before.now.high)
    for batch in in_batches(found.since(since, there)):
        if batch.records:
            end += len(batch.records) + 1  # with the marker of the transaction
        now = now.then_partly(made, end)
        if batch.is_last:
            now = now.then(made, end, largest if found.too_large else None)
        writer.write(batch.records, _consumed(reader, partition, now))
        step("batch published")
    _, high = offsets.watermarks_of(settings, partition, committed=False)
    if before.now.high > first or high > end:
        # Another program writes too: the next run finds records that it did not expect.
        writer.write([], _consumed(reader, partition, replace(now, end=first)))
    return found


def _consumed(reader: "Consumer", partition: TopicPartition, now: Published) -> Consumed:
    return Consumed(reader, partition, now.at.number, now.as_metadata())


def _writer(publishing: _Publishing, partition: TopicPartition) -> Transactions:
    problem = f"{partition}: could not publish snapshot {publishing.snapshot.number}"
    return Transactions(
        publishing.settings,
        f"{partition.topic}/publish/{partition.partition}",
        fenced=f"{problem}: fenced by a newer compaction, which publishes it",
        failed=f"{problem}: {{reason}}; the next compaction publishes it",
        **producer_config(publishing.config) | queue_config(publishing.largest),
    )
