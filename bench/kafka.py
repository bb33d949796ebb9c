"""The benchmark's own broker, its topics, and what stands in them."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from shardpost.embedded.daemons import wait_until
from shardpost.kafka import offsets, reading, records
from shardpost.settings import Settings
from tests.support.installed import installed

PARTITIONS = 8
# The broker's cleaner must not change the input between two measured runs.
KEPT = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(100 * 365 * 24 * 3600 * 1000)}
FAST = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 262_144,
    "queue.buffering.max.messages": 400_000,
    "queue.buffering.max.kbytes": 262_144,
}


def create(settings: Settings, topic: str) -> bool:
    """Create a topic; False if it was there."""
    admin = installed(settings).kafka.admin()
    if topic in admin.list_topics(timeout=15).topics:
        return False
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=KEPT)])[topic].result(30)
    return True


def delete(settings: Settings, topics: Iterable[str]) -> None:
    """Delete topics, those that there are, and return when they are gone."""
    admin = installed(settings).kafka.admin()
    doomed = set(topics) & set(admin.list_topics(timeout=15).topics)
    if doomed:
        for done in admin.delete_topics(list(doomed)).values():
            done.result(30)

    def are_gone() -> bool:
        return not doomed & set(admin.list_topics(timeout=15).topics)

    wait_until(are_gone, f"deleted topics of {settings.bootstrap} are still there", 30)


def produce(
    settings: Settings, topic: str, stream: Iterable[tuple[str, str | bytes | None, int]]
) -> None:
    """Put records into a topic, placed as Java clients place them."""
    producer = Producer(installed(settings).kafka.config(**FAST))
    for number, (key, value, at) in enumerate(stream):
        while True:
            try:
                producer.produce(topic, value, key, timestamp=at)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1024 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"{topic}: {left} records were not taken by the broker")


def length(settings: Settings, topic: str) -> int:
    """Return how many offsets a topic has."""
    marks = offsets.watermarks(installed(settings).kafka, {topic: PARTITIONS}, committed=False)[
        topic
    ]
    return sum(high - low for low, high in marks.values())


def latest(settings: Settings, topic: str) -> dict[str, list[int]]:
    """Return {key: ids} of a topic of holders, ours or the peer's, as its records leave it."""
    found: dict[str, list[int]] = {}
    for partition in range(PARTITIONS):
        for message in reading.read_to_end(
            installed(settings).kafka, records.TopicPartition(topic, partition)
        ):
            client, value = (message.key() or b"").decode(), message.value()
            if value is None:
                found.pop(client, None)
            else:
                found[client] = ids_of(value)
    return found


def ids_of(value: bytes | None) -> list[int]:
    """Return the ids of a record of holders, ours or the peer's; none of a tombstone."""
    form: Any = json.loads(value or b"[]")
    ids = form["Positions"] if isinstance(form, dict) else form
    return [int(id_) for id_ in ids]


def read_raw(settings: Settings, topic: str) -> int:
    """Read a whole topic with a plain consumer, the floor; return how many records it has."""
    reader = Consumer(
        installed(settings).kafka.config(
            **{
                "group.id": "bench-floor",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 10,
            },
        )
    )
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    count, ended = 0, 0
    while ended < PARTITIONS:
        for message in reader.consume(10_000, 1.0):
            if message.error():
                ended += 1
            else:
                count += 1
    reader.close()
    return count


def forget(settings: Settings, groups: Iterable[str]) -> None:
    """Delete consumer groups, those that there are."""
    admin = installed(settings).kafka.admin()  # it has to outlive what it does
    for done in admin.delete_consumer_groups(list(groups)).values():
        with suppress(KafkaException):
            done.result(30)
