"""How long `shardpost lag` takes: many groups that are behind in many partitions."""

import os
import random
import time
from datetime import UTC, datetime
from statistics import median

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import measured
from bench.ours import SHARDPOST
from shardpost.checkout import CHECKOUT
from shardpost.lag import measure as lag
from shardpost.settings import Settings
from tests.support.installed import installed

TOPICS = 4
RECORDS = 100


def measure(settings: Settings, groups: int, partitions: int, runs: int) -> None:
    """Measure the command with so many groups on so many partitions in all; print the table."""
    topics = {f"lag-{partitions}-{number}": partitions // TOPICS for number in range(TOPICS)}
    _fill(settings, topics)
    _commit(settings, topics, groups)
    command = [str(SHARDPOST), "lag", "--json"]
    environ = os.environ | settings.environ()
    found = [measured.run(command, environ, CHECKOUT) for _ in range(runs)]
    _check(settings, groups * sum(topics.values()))
    seconds = sorted(one.seconds for one in found)
    print(f"{groups} groups x {sum(topics.values())} partitions, {RECORDS} records each")
    print(f"seconds: {median(seconds):.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})")
    print(f"peak: {max(one.peak for one in found)} MiB")


def _check(settings: Settings, expected: int) -> None:
    """Refuse figures of a command that did not look at everything."""
    found = lag.measure(installed(settings), datetime.now(UTC))
    rows = [row for row in found.rows if row.topic[:4] == "lag-"]
    if len(rows) != expected or any(row.seconds_behind is None for row in rows):
        raise RuntimeError(
            f"expected {expected} rows that are known, found {len(rows)}: {found.problems}"
        )


def _fill(settings: Settings, topics: dict[str, int]) -> None:
    client = installed(settings).kafka.admin()
    there = client.list_topics(timeout=15).topics
    new = [NewTopic(name, count, 1) for name, count in topics.items() if name not in there]
    if not new:
        return
    for done in client.create_topics(new).values():
        done.result(60)
    writer = Producer(installed(settings).kafka.config(**{"linger.ms": 100}))
    for _ in range(RECORDS):
        for name, count in topics.items():
            for partition in range(count):
                writer.produce(name, b"x" * 100, b"key", partition)
        writer.poll(0)
    if left := writer.flush(120):
        raise RuntimeError(f"{left} records were not taken by the broker")


def _commit(settings: Settings, topics: dict[str, int], groups: int) -> None:
    """Put each group somewhere else in each partition, often at its end."""
    client, places = installed(settings).kafka.admin(), random.Random(7)  # noqa: S311 - always the same
    asked = []
    for group in range(groups):
        offsets = [
            TopicPartition(name, partition, places.randint(0, RECORDS))
            for name, count in topics.items()
            for partition in range(count)
        ]
        asked.append(ConsumerGroupTopicPartitions(f"lag-{group}", offsets))
    deadline = time.monotonic() + 120
    while asked := [one for one in asked if not _is_committed(client, one)]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the offsets of {len(asked)} groups were not taken by the broker")


def _is_committed(client: AdminClient, asked: ConsumerGroupTopicPartitions) -> bool:
    """Commit a group's offsets; a broker that has just started takes none of them."""
    [done] = client.alter_consumer_group_offsets([asked]).values()
    return all(one.error is None for one in done.result(60).topic_partitions)
