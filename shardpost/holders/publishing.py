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
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import runs_of
from shardpost.errors import combined
from shardpost.holders.holder_records import ChangedHolders, HolderRecords
from shardpost.holders.model.published import Published, SnapshotRun
from shardpost.holders.share_holders_topic import (
    PUBLISH_GROUP,
    PublishedPartition,
    keys_with_values,
    published_partitions,
)
from shardpost.installation import Installation
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.clients import GroupConsumer
from shardpost.kafka.kafka import MOST_WRITERS
from shardpost.kafka.records import TopicPartition, in_batches
from shardpost.kafka.transactions import (
    Consumed,
    FencedError,
    LostAnswerError,
    Transactions,
    anyone,
)
from shardpost.logs import step
from shardpost.topics import guards
from shardpost.wording import counted

log = logging.getLogger(__name__)

MAX_CONCURRENT = 8
T = TypeVar("T")


class Publication(NamedTuple):
    """How many records were published, and how many lists were too large for theirs.

    `is_compacted`: whether Kafka keeps the last record of each client, however old it is.
    """

    records: int = 0
    too_large: int = 0
    is_compacted: bool = True


def publish(installation: Installation, snapshot: Snapshot, *, mark: bool = False) -> Publication:
    """Publish what changed since each partition's published snapshot.

    Where nothing did, it stays that one, unless `mark`: then each partition is at this snapshot.
    TransactionError if a partition could not be published; the next compaction publishes it.
    """
    return _Publisher(installation, snapshot).publish(mark=mark)


class _Publisher:
    """Publishes one snapshot, by the settings of the topic that are in force."""

    def __init__(self, installation: Installation, snapshot: Snapshot) -> None:
        self._installation, self._snapshot = installation, snapshot
        self._topic = installation.kafka.topic("share-holders")
        self._partitions = topic_metadata.partitions_of(installation.kafka, self._topic)
        self._config = topic_metadata.topic_config(installation.kafka, self._topic)
        self._largest = topic_metadata.largest_batch(self._config)
        self._changed: ChangedHolders | None = None
        # What a writer has to have been opened by.
        self._opened_by = repr(self._config), installation.settings.model_dump_json()

    def publish(self, *, mark: bool) -> Publication:
        policy = self._config.get("cleanup.policy")
        if policy != "compact":
            log.warning(
                "topic %s: expected cleanup.policy=compact only, found %r: Kafka deletes the"
                " records of current holders. Set it with `kafka-configs.sh --alter"
                " --entity-type topics --entity-name %s --add-config cleanup.policy=compact`;"
                " deleted records are published again",
                *(self._topic, policy, self._topic),
            )
        done: list[HolderRecords] = []
        failures: list[Exception] = []
        with self._installation.kafka.kept_consumer(PUBLISH_GROUP) as self._reader:
            behind = self._behind(mark=mark)
            for first in range(0, len(behind), MOST_WRITERS):
                published, failed = self._publish_some(behind[first : first + MOST_WRITERS])
                done, failures = done + published, failures + failed
        if failures:
            raise combined(failures)
        records, too_large = (sum(one.count for one in done), sum(one.too_large for one in done))
        return Publication(records, too_large, is_compacted=policy == "compact")

    def _behind(self, *, mark: bool) -> list[TopicPartition]:
        """Return the partitions with something to publish; with `mark`, all that are behind."""
        number, largest = self._snapshot.number, self._largest
        # A killed run may have left its transaction open, until a writer is opened: what that
        # would note is not waited for. It is read again then.
        level = {"isolation.level": "read_uncommitted"}
        with self._installation.kafka.kept_consumer(PUBLISH_GROUP, **level) as reader:
            partitions = self._look(self._partitions, reader)
        behind = [there for there in partitions if there.since(largest) < number]
        since = min((there.since(largest) for there in behind), default=number)
        if since and since < number:  # else everything is published
            self._changed = ChangedHolders.read(self._installation.tables, self._snapshot, since)
        if not (mark or any(there.wrong or there.has_all_to_come(largest) for there in behind)):
            is_same = self._changed is not None and not self._changed.of_shard
            if since == number or is_same:
                return []
        return [there.partition for there in behind]

    def _look(
        self, partitions: Sequence[TopicPartition], reader: GroupConsumer
    ) -> list[PublishedPartition]:
        self._runs = runs_of(self._installation.tables, self._snapshot)
        return published_partitions(self._installation.kafka, reader, partitions, self._runs)

    def _publish_some(
        self, partitions: Sequence[TopicPartition], *, is_again: bool = False
    ) -> tuple[list[HolderRecords], list[Exception]]:
        """Publish partitions in parallel; return what was published, and what failed."""
        self._installation.tables.require_held()  # without the lock it would fence its holder
        with ThreadPoolExecutor(MAX_CONCURRENT) as pool, ExitStack() as stack:
            opened, unopened = _ended({at: pool.submit(self._opened, at) for at in partitions})
            unsure = set[TopicPartition]()
            for partition, (writer, _) in opened.items():
                stack.callback(self._done_with, partition, writer, unsure)
            # Read after that: who takes over is the owner before it publishes, and a newer run
            # commits its snapshot before it publishes it.
            guards.require_owner(self._installation)
            found = self._look([*opened], self._reader)
            behind = [there for there in found if self._is_behind(there)]
            # The marker of the last transaction of a writer that was kept may be yet to come. Who
            # opens a new one has waited for it.
            unsure |= {one.partition for one in behind if one.wrong and opened[one.partition][1]}
            behind = [there for there in behind if there.partition not in unsure]
            ends = self._ends(behind, committed=True)
            written, failed = _ended(
                {
                    at: pool.submit(self._write, there, ends[at], opened[at][0])
                    for there in behind
                    for at in [there.partition]
                }
            )
            ends = self._ends([one.before for one in written.values()], committed=False)
            _, unnoted = _ended(
                {
                    at: pool.submit(self._note_others, one, ends[at], opened[at][0])
                    for at, one in written.items()
                }
            )
        done = [one.records for one in written.values()]
        failures = unopened | failed | unnoted
        # By new writers all is read again, once: what others have published meanwhile, and what of
        # this run is there.
        lost = {
            at
            for at, (_, is_kept) in opened.items()
            if isinstance(failures.get(at), LostAnswerError)
            or (is_kept and isinstance(failures.get(at), FencedError))
        }
        again = [] if is_again else [at for at in opened if at in lost | unsure]
        more, left = self._publish_some(again, is_again=True) if again else ([], [])
        return done + more, [error for at, error in failures.items() if at not in again] + left

    def _done_with(
        self, partition: TopicPartition, writer: Transactions, unsure: Collection[TopicPartition]
    ) -> None:
        is_usable = partition not in unsure and not writer.is_broken
        self._installation.kafka.writers.give_back(
            partition, writer, self._opened_by, is_usable=is_usable
        )

    def _opened(self, partition: TopicPartition) -> tuple[Transactions, bool]:
        """Return a writer that has fenced older ones, and whether it was kept open."""
        problem = f"{partition}: could not publish snapshot {self._snapshot.number}"
        texts = {
            "fenced": f"{problem}: fenced by a newer compaction, which publishes it",
            "failed": f"{problem}: {{reason}}; the next compaction publishes it",
        }
        if kept := self._installation.kafka.writers.take(partition, self._opened_by):
            kept.say(**texts)
            return kept, True
        id_ = f"{partition.topic}/publish/{partition.partition}"
        config = topic_metadata.producer_config(self._config)
        # Whether it may is asked once for all of them, when they are open.
        writer = Transactions(self._installation.kafka, id_, may_write=anyone, **texts, **config)
        try:
            writer.open()
        except BaseException:
            writer.close()
            raise
        return writer, False

    def _is_behind(self, there: PublishedPartition) -> bool:
        at, number = there.published.at, self._snapshot.number
        is_newer = at.number > number and at.is_in(self._runs)
        return not is_newer and there.since(self._largest) < number

    def _ends(
        self, partitions: Sequence[PublishedPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        places = [there.partition for there in partitions]
        marks = offsets.watermarks_of(self._installation.kafka, places, committed=committed)
        return {place: end for place, (_, end) in marks.items()}

    def _write(self, before: PublishedPartition, first: int, writer: Transactions) -> "_Written":
        """Write what is to be published, in transactions, from that offset on."""
        installation, snapshot, largest = self._installation, self._snapshot, self._largest
        partition, since = before.partition, before.since(largest)
        if before.wrong:
            log.warning("%s: %s: publishing all again", partition, before.wrong)
        there = set[bytes]()
        if before.has_all_to_come(largest):
            there = keys_with_values(installation.kafka, partition)
        records = HolderRecords(installation.tables, snapshot, partition, largest, self._changed)
        made, end = SnapshotRun(snapshot.number, snapshot.run), first
        now = before.published if since else Published(low=before.now.high)
        for batch in in_batches(records.since(since, there)):
            if batch.records:
                end += len(batch.records) + 1  # with the marker of the transaction
            now = replace(now, end=end, partly=made)
            if batch.is_last:
                now = now.then(made, end, largest if records.too_large else None)
            writer.write(batch.records, self._consumed(partition, now))
            step("batch published")
        log.info("%s: published %s", partition, counted(records.count, "record"))
        return _Written(before, records, now, first)

    def _note_others(self, written: "_Written", high: int, writer: Transactions) -> None:
        """Note it if another program writes too: the next run finds records that it cannot know."""
        partition, now, first = written.before.partition, written.now, written.first
        if written.before.now.high > first or high > now.end:
            writer.write([], self._consumed(partition, replace(now, end=first)))

    def _consumed(self, partition: TopicPartition, now: Published) -> Consumed:
        return Consumed(self._reader, partition, now.at.number, now.as_metadata())


@dataclass(frozen=True)
class _Written:
    """What was written to a partition, from the offset `first` on, and what is noted of it."""

    before: PublishedPartition
    records: HolderRecords
    now: Published
    first: int


def _ended(
    futures: Mapping[TopicPartition, "Future[T]"],
) -> tuple[dict[TopicPartition, T], dict[TopicPartition, Exception]]:
    """Wait for all; return their results, and the failures."""
    errors = {at: future.exception() for at, future in futures.items()}
    failures = {at: error for at, error in errors.items() if isinstance(error, Exception)}
    done = {at: future.result() for at, future in futures.items() if at not in failures}
    return done, failures
