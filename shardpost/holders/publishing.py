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
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from shardpost import locks, ownership
from shardpost.delta.query import has_rows
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
from shardpost.kafka.topic_configs import largest_batch, producer_config, topic_config
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.logs import step
from shardpost.settings import Settings
from shardpost.wording import counted

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


def publish(settings: Settings, snapshot: Snapshot, *, mark: bool = False) -> Publication:
    """Publish what changed since each partition's published snapshot.

    Where nothing did, it stays that one, unless `mark`: then each partition is at this snapshot.
    TransactionError if a partition could not be published; the next compaction publishes it.
    """
    return _Publisher(settings, snapshot).publish(mark=mark)


class _Publisher:
    """Publishes one snapshot, by the settings of the topic that are in force."""

    def __init__(self, settings: Settings, snapshot: Snapshot) -> None:
        self._settings, self._snapshot = settings, snapshot
        self._topic = settings.topic("share-holders")

    def publish(self, *, mark: bool) -> Publication:
        runs = runs_of(self._settings, self._snapshot)
        partitions = published_partitions(self._settings, self._topic, runs)
        self._config = topic_config(self._settings, self._topic)
        self._largest = largest_batch(self._config)
        is_compacted = self._is_compacted()
        behind = self._behind(partitions, mark=mark)
        with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
            futures = [pool.submit(self._publish_partition, partition) for partition in behind]
        errors = [future.exception() for future in futures]
        if failures := [error for error in errors if isinstance(error, Exception)]:
            raise combined([*{str(error): error for error in failures}.values()])
        done = [future.result() for future in futures]
        records, too_large = (sum(counts) for counts in zip((0, 0), *done, strict=True))
        return Publication(records, too_large, is_compacted)

    def _is_compacted(self) -> bool:
        """Tell whether the topic is compacted and no more; warn if it is not."""
        policy = self._config.get("cleanup.policy")
        if policy != "compact":
            log.warning(
                "topic %s: expected cleanup.policy=compact and nothing else, found %r: Kafka"
                " deletes the records of clients who hold. Set it with `kafka-configs.sh --alter"
                " --entity-type topics --entity-name %s --add-config cleanup.policy=compact`; what"
                " was deleted is published again",
                *(self._topic, policy, self._topic),
            )
        return policy == "compact"

    def _behind(
        self, partitions: Sequence[PublishedPartition], *, mark: bool
    ) -> list[TopicPartition]:
        """Return the partitions to which something is to be published; with `mark` all that lag."""
        number, largest = self._snapshot.number, self._largest
        behind = [there for there in partitions if there.since(largest) < number]
        if not (mark or any(there.wrong or there.has_all_to_come(largest) for there in behind)):
            since = min((there.since(largest) for there in behind), default=number)
            if not self._has_changes(since):
                return []
        return [there.partition for there in behind]

    def _has_changes(self, since: int) -> bool:
        """Tell whether any holder changed: nearly always known from the files' statistics alone."""
        later = f"snapshot > {since}"
        return since < self._snapshot.number and has_rows(
            self._settings, self._snapshot, SHARE_HOLDERS, later
        )

    def _publish_partition(self, partition: TopicPartition) -> tuple[int, int]:
        """Publish one partition; return how many records, and how many lists were too large."""
        settings, snapshot, writer = self._settings, self._snapshot, self._writer(partition)
        with closing(clients.consumer(settings, PUBLISH_GROUP)) as reader, closing(writer):
            locks.require_held()  # who lost its lock would fence who has it
            writer.open()
            # Read after that: who takes over is the owner before it publishes, and a newer run
            # commits its snapshot before it publishes it.
            ownership.require(settings)
            runs = runs_of(settings, snapshot)
            before = published_partition(settings, reader, partition, runs)
            at = before.published.at
            if at.number > snapshot.number and at.is_in(runs):
                return 0, 0
            if before.since(self._largest) >= snapshot.number:
                return 0, 0
            if before.wrong:
                log.warning("%s: %s: publishing all again", partition, before.wrong)
            records = self._write(before, reader, writer)
        log.info("%s: published %s", partition, counted(records.count, "record"))
        return records.count, records.too_large

    def _write(
        self, before: PublishedPartition, reader: "Consumer", writer: Transactions
    ) -> HolderRecords:
        """Write what is to be published, in transactions; return the records."""
        settings, snapshot, largest = self._settings, self._snapshot, self._largest
        partition, since = before.partition, before.since(largest)
        _, first = offsets.watermarks_of(settings, partition, committed=True)
        there = keys_with_values(settings, partition) if before.has_all_to_come(largest) else set()
        records = HolderRecords(settings, snapshot, partition, largest)
        made, end = SnapshotRun(snapshot.number, snapshot.run), first
        now = before.published if since else Published(low=before.now.high)
        for batch in in_batches(records.since(since, there)):
            if batch.records:
                end += len(batch.records) + 1  # with the marker of the transaction
            now = now.then_partly(made, end)
            if batch.is_last:
                now = now.then(made, end, largest if records.too_large else None)
            writer.write(batch.records, _consumed(reader, partition, now))
            step("batch published")
        _, high = offsets.watermarks_of(settings, partition, committed=False)
        if before.now.high > first or high > end:
            # Another program writes too: the next run finds records that it did not expect.
            writer.write([], _consumed(reader, partition, replace(now, end=first)))
        return records

    def _writer(self, partition: TopicPartition) -> Transactions:
        problem = f"{partition}: could not publish snapshot {self._snapshot.number}"
        return Transactions(
            self._settings,
            f"{partition.topic}/publish/{partition.partition}",
            fenced=f"{problem}: fenced by a newer compaction, which publishes it",
            failed=f"{problem}: {{reason}}; the next compaction publishes it",
            **producer_config(self._config) | queue_config(self._largest),
        )


def _consumed(reader: "Consumer", partition: TopicPartition, now: Published) -> Consumed:
    return Consumed(reader, partition, now.at.number, now.as_metadata())
