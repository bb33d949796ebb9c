"""Publishing the difference between the last published snapshot and the newest to `share-holders`.

One transactional id per partition, `<topic>/publish/<partition>`: older producers are fenced first,
only then the number of the published snapshot is read, and the difference goes out in bounded
transactions. The last one holds the new number, as metadata of an offset commit. So a stopped run
that wakes up later cannot overwrite newer values; and what a run that was killed between two
transactions had written is written again, since each record is a client's whole list.
"""

import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from shardpost.delta.query import at_snapshot, query
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import combined
from shardpost.holders.holder_records import HolderRecords
from shardpost.holders.model.snapshot_run import SnapshotRun
from shardpost.holders.model.tables import SHARE_HOLDERS
from shardpost.holders.snapshot_runs import runs_of
from shardpost.kafka import clients, offsets
from shardpost.kafka.batches import in_batches, queue_config
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.topic_configs import TopicConfig
from shardpost.kafka.topic_limits import largest_batch, producer_config, topic_config
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.settings import Settings
from shardpost.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-publish"
MAX_CONCURRENT = 4


class Publication(NamedTuple):
    """How many records were published, and how many lists were too large for theirs."""

    records: int = 0
    too_large: int = 0


class Published(NamedTuple):
    """What a partition was published at.

    `largest` is how large a record could be, if a list was too large for one since all were
    published; else None. `run` made the snapshot; None where an older version published it.
    """

    snapshot: int = 0
    largest: int | None = None
    run: str | None = None

    def if_of(self, runs: Mapping[int, str]) -> "Published":
        """Return the same, or the beginning if that snapshot is none of {number: run}.

        Then the tables were restored: what was published since is not in them.
        """
        return self if SnapshotRun(self.snapshot, self.run).is_in(runs) else Published()

    def since(self, largest: int) -> int:
        """Return the number of the snapshot whose later changes are to be published.

        0, for all holders, where a list was too large and larger ones are possible now.
        """
        return 0 if self.largest is not None and self.largest < largest else self.snapshot

    def then(self, snapshot: Snapshot, since: int, largest: int | None) -> "Published":
        """Return what it is at after a publication; `largest` is None if no list was too large."""
        known = [at for at in (self.largest if since else None, largest) if at is not None]
        return Published(snapshot.number, min(known, default=None), snapshot.run)

    def as_metadata(self) -> str:
        """Return the form in which it is committed."""
        form = self._asdict()
        return json.dumps({name: value for name, value in form.items() if value is not None})


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


def publish(settings: Settings, snapshot: Snapshot) -> Publication:
    """Publish what changed since each partition's published snapshot.

    TransactionError if a partition could not be published; the next compaction publishes it.
    """
    topic = settings.topic("share-holders")
    published = published_snapshots(settings)
    runs = runs_of(settings, snapshot)
    publishing = _Publishing(settings, snapshot, topic, topic_config(settings, topic))
    behind = {
        shard: since
        for shard, state in published.items()
        if (since := state.if_of(runs).since(publishing.largest)) < snapshot.number
    }
    if not behind or not _has_changes(settings, snapshot, min(behind.values())):
        return Publication()
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        futures = [pool.submit(_publish_shard, publishing, shard) for shard in behind]
    failures = [error for future in futures if isinstance(error := future.exception(), Exception)]
    if failures:
        raise combined(failures)
    done = [future.result() for future in futures]
    return Publication(sum(one.records for one in done), sum(one.too_large for one in done))


def published_snapshots(settings: Settings) -> dict[int, Published]:
    """Return {partition: what it was published at}."""
    topic = settings.topic("share-holders")
    count = offsets.partition_counts(settings, [topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    with closing(clients.consumer(settings, GROUP)) as reader:
        found = offsets.committed_metadata(settings, reader, partitions)
    return {partition.partition: _published(metadata) for partition, metadata in found.items()}


def _published(metadata: str | None) -> Published:
    return Published(**json.loads(metadata)) if metadata else Published()


def _has_changes(settings: Settings, snapshot: Snapshot, since: int) -> bool:
    """Tell whether any holder changed: nearly always known from the files' statistics alone."""
    sql = f"SELECT 1 FROM share_holders WHERE snapshot > {since} LIMIT 1"  # noqa: S608 - a number
    return bool(query(settings, sql, at_snapshot(snapshot, SHARE_HOLDERS)).num_rows)


def _publish_shard(publishing: _Publishing, shard: int) -> Publication:
    settings, snapshot, largest = publishing.settings, publishing.snapshot, publishing.largest
    partition = TopicPartition(publishing.topic, shard)
    writer = _writer(publishing, partition)
    with closing(clients.consumer(settings, GROUP)) as reader, closing(writer):
        writer.open()
        before = _published(offsets.committed_metadata(settings, reader, [partition])[partition])
        # Read after that: a newer run commits its snapshot before it publishes it.
        valid = before.if_of(runs_of(settings, snapshot))
        if valid != before:
            log.warning(
                "%s: snapshot %d was published, but is not in these tables: publishing all again",
                *(partition, before.snapshot),
            )
        since = valid.since(largest)
        if since >= snapshot.number:
            return Publication()
        found = HolderRecords(settings, snapshot, partition, largest)
        for batch in in_batches(found.since(since)):
            consumed = None
            if batch.is_last:
                after = valid.then(snapshot, since, largest if found.too_large else None)
                metadata = after.as_metadata()
                consumed = Consumed(reader, partition, snapshot.number, metadata)
            writer.write(batch.records, consumed)
            step("batch published")
    log.info("%s: published %d records", partition, found.count)
    return Publication(found.count, found.too_large)


def _writer(publishing: _Publishing, partition: TopicPartition) -> Transactions:
    problem = f"{partition}: could not publish snapshot {publishing.snapshot.number}"
    return Transactions(
        publishing.settings,
        f"{partition.topic}/publish/{partition.partition}",
        fenced=f"{problem}: fenced by a newer compaction, which publishes it",
        failed=f"{problem}: {{reason}}; the next compaction publishes it",
        **producer_config(publishing.config) | queue_config(publishing.largest),
    )
