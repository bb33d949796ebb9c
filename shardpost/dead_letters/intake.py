"""Taking in the dead letters that others write: each record once, with its offset.

One transaction holds the letters and the offsets up to which they were taken, in the group
`shardpost-intake`. A producer for each partition fences older ones before the offset is read.
"""

import logging
from contextlib import closing
from datetime import datetime
from functools import partial

from shardpost.dead_letters.batches import batches, itself
from shardpost.dead_letters.model.foreign_letters import Known, translated
from shardpost.dead_letters.model.transitions import Routes
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
    topics = sorted(_foreign(settings))
    if not topics:
        return 0
    marks = offsets.watermarks(settings, offsets.partition_counts(settings, topics), committed=True)
    return sum(
        _take_in(settings, routes, now, (topic, partition))
        for topic, partitions in marks.items()
        for partition, (low, high) in partitions.items()
        if low < high
    )


def _take_in(settings: Settings, routes: Routes, now: datetime, source: tuple[str, int]) -> int:
    topic, partition = source
    where = f"{topic}[{partition}]"
    writer = Transactions(
        settings,
        f"{topic}/intake/{partition}",
        fenced=f"fenced: a newer sweep takes in {where}; this one stops",
        failed=f"{where}: cannot be taken in ({{reason}}): sweep again when Kafka is well",
        **{"message.max.bytes": PASSED_ON_BYTES},
    )
    count, taken = 0, None
    with closing(writer), closing(clients.consumer(settings, GROUP)) as reader:
        writer.open()
        start = offsets.committed(settings, reader, TopicPartition(topic, partition))
        found = reading.read_to_end(
            settings, TopicPartition(topic, partition), start=start, committed=True
        )
        records = map(record_of, found)
        known = Known(settings.retry_rules, _foreign(settings))
        into = routes.store, routes.partitions[routes.store], known
        for batch in batches(records, settings.retry_batch, itself):
            letters = [translated(record, now, *into) for record in batch]
            taken = Consumed(reader, TopicPartition(topic, partition), batch[-1].offset + 1)
            try:
                writer.write(letters, taken)
                count += len(letters)
            except TooLargeError:
                ends = [taken._replace(offset=record.offset + 1) for record in batch]
                count += sum(map(partial(_one, writer), letters, ends))
        if taken is None and start is not None:  # Kafka forgets offsets that nobody commits again
            writer.write([], Consumed(reader, TopicPartition(topic, partition), start))
    if count:
        log.info("%s: %d letters taken in", where, count)
    return count


def _foreign(settings: Settings) -> frozenset[str]:
    return split_names(settings.foreign_dead_letters or "")


def _one(writer: Transactions, letter: Outgoing, taken: Consumed) -> int:
    """Take in one letter of a batch of which one is too large; return how many that were."""
    try:
        writer.write([letter], taken)
    except TooLargeError:
        place = taken.partition.at(taken.offset - 1)
        log.warning("%s: too large for a letter: only that topic has it", place)
        writer.write([], taken)
        return 0
    return 1
