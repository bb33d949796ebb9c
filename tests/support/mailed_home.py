"""A home whose weeks were mailed to some clients, with Kafka in memory."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.written_weeks import begin, freeze, record

CLIENTS = ("c0", "c4", "c1", "c2")  # two in shard 0, two in shard 1


@contextmanager
def mailed_home(
    home: Path, weeks: Iterable[IsoWeek], mailed: Iterable[str]
) -> Iterator[MemoryKafka]:
    """Give a home of two shards; each week's audience are CLIENTS, of whom some were mailed."""
    with memory_kafka(home=home, partitions=2, kafka_timeout=1) as kafka:
        apply_topics(kafka.settings)
        for week in weeks:
            begin(kafka.settings, week, week.end)
            freeze(kafka.settings, week, CLIENTS, week.end)
            for client in mailed:
                record(kafka.settings, week, client, DeliveryState.SENT)
        yield kafka
