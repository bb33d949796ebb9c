"""Taking in the dead letters of Kafka Connect and Spring Kafka: each record once, by its offset.

One transaction holds the letters and the offsets up to which they were taken, in the group
`shardpost-intake`. A producer for each partition fences older ones before the offset is read.
"""

import logging
from contextlib import closing
from datetime import datetime

from shardpost.dead_letters.batches import batches, itself
from shardpost.dead_letters.model.foreign_letters import KnownTopics, from_foreign
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.kafka import clients, offsets, reading
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.records import Outgoing
from shardpost.kafka.transactions import Consumed, TooLargeError, Transactions
from shardpost.retry_settings import split_names
from shardpost.settings import Settings
from shardpost.topics.declared import PASSED_ON_BYTES

log = logging.getLogger(__name__)

GROUP = "shardpost-intake"


def take_in(settings: Settings, routes: Routes, now: datetime) -> int:
    """Put all new foreign dead letters into the store; return how many."""
    topics = sorted(_foreign_topics(settings))
    if not topics:
        return 0
    counts = offsets.partition_counts(settings, topics)
    watermarks = offsets.watermarks(settings, counts, committed=True)
    return sum(
        _take_in_partition(settings, routes, now, TopicPartition(topic, partition))
        for topic, partitions in watermarks.items()
        for partition, (low, high) in partitions.items()
        if low < high
    )


def _take_in_partition(
    settings: Settings, routes: Routes, now: datetime, source: TopicPartition
) -> int:
    writer = _writer(settings, source)
    count, consumed = 0, None
    known = KnownTopics(settings.retry_rules, _foreign_topics(settings))
    with closing(writer), closing(clients.consumer(settings, GROUP)) as reader:
        writer.open()
        start = offsets.committed(settings, reader, source)
        messages = reading.read_to_end(settings, source, start=start, committed=True)
        for batch in batches(map(record_of, messages), settings.retry_batch, itself):
            store, partitions = routes.store, routes.partitions[routes.store]
            letters = [from_foreign(record, now, store, partitions, known) for record in batch]
            ends = [Consumed(reader, source, record.offset + 1) for record in batch]
            consumed = ends[-1]
            count += _write(writer, letters, ends)
        if consumed is None and start is not None:  # Kafka forgets offsets not committed again
            writer.write([], Consumed(reader, source, start))
    if count:
        log.info("%s: %d letters taken in", source, count)
    return count


def _writer(settings: Settings, source: TopicPartition) -> Transactions:
    return Transactions(
        settings,
        f"{source.topic}/intake/{source.partition}",
        fenced=f"fenced: a newer sweep takes in {source}; this one stops",
        failed=f"{source}: its letters cannot be taken in ({{reason}}): sweep again when Kafka is"
        " available",
        **{"message.max.bytes": PASSED_ON_BYTES},
    )


def _write(writer: Transactions, letters: list[Outgoing], ends: list[Consumed]) -> int:
    """Write letters with their offsets, without those too large; return how many were written."""
    try:
        writer.write(letters, ends[-1])
    except TooLargeError:
        if len(letters) > 1:
            pairs = zip(letters, ends, strict=True)
            return sum(_write(writer, [letter], [end]) for letter, end in pairs)
        source = ends[-1].partition.at(ends[-1].offset - 1)
        log.warning("%s: too large for a letter: it is only in that topic", source)
        writer.write([], ends[-1])
        return 0
    return len(letters)


def _foreign_topics(settings: Settings) -> frozenset[str]:
    return split_names(settings.foreign_dead_letters or "")
