"""Kafka through confluent-kafka: clients, watermarks, and reading a partition to its end.

Watermarks are asked for with read_uncommitted, since under read_committed librdkafka gives the last
stable offset; an end may be a transaction marker, so readers stop by position and never by "last
record seen".
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from shardpost.domain.snapshot import Offsets
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

POLL_SECONDS = 0.5
CONTACT_SECONDS = 15.0  # for the first answer: who asks wants to know soon that nobody is there
BATCH = 10_000

# Nobody leads a partition for a moment: it is new, its broker has just started, or another one
# takes over. The last four are librdkafka's: a broker has just started and does not know its topics
# yet, or it went away under a question.
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
)
MOVING_SECONDS = 0.1


class KafkaUnreachableError(ShardpostError):
    """Kafka did not answer in time."""


def client_config(settings: Settings, **more: Any) -> dict[str, Any]:
    """Return what every librdkafka client of ours is configured with."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": "shardpost",
        "log_level": 0,
        **settings.kafka,
        **more,
    }


def admin(settings: Settings) -> AdminClient:
    """Return an admin client."""
    return AdminClient(client_config(settings))


def answers(settings: Settings, wait: float) -> bool:
    """Tell whether Kafka gives its metadata within so many seconds."""
    try:
        admin(settings).list_topics(timeout=wait)
    except KafkaException:
        return False
    return True


def consumer(settings: Settings, group: str, **more: Any) -> Consumer:
    """Return a consumer that commits nothing by itself and reads only what is committed."""
    base = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    return Consumer(client_config(settings, **(base | more)))


def producer(settings: Settings) -> Producer:
    """Return a plain producer: idempotent, and placing keys as Java clients do."""
    more = {"partitioner": "murmur2_random", "enable.idempotence": True}
    return Producer(client_config(settings, **more))


def transactional_producer(settings: Settings, transactional_id: str, **more: Any) -> Producer:
    """Return a producer under that id; calling init_transactions on it fences all older ones."""
    return Producer(
        client_config(
            settings,
            **{
                "transactional.id": transactional_id,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                **more,
            },
        )
    )


def partition_counts(settings: Settings, topics: list[str]) -> dict[str, int]:
    """Return how many partitions each topic has; ShardpostError for one that does not exist."""
    try:
        known = (
            admin(settings).list_topics(timeout=min(CONTACT_SECONDS, settings.kafka_timeout)).topics
        )
    except KafkaException as error:
        raise unreachable(settings, error) from None
    missing = [topic for topic in topics if topic not in known]
    if missing:
        raise ShardpostError(
            f"Kafka at {settings.bootstrap} has no topic {', '.join(missing)}:"
            " create it (`shardpost topics apply` creates the declared ones), or correct the"
            " setting that names it"
        )
    return {topic: len(known[topic].partitions) for topic in topics}


def unreachable(settings: Settings, error: Exception) -> KafkaUnreachableError:
    """Return the error that says that Kafka does not answer, and what to do."""
    reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else error
    return KafkaUnreachableError(
        f"Kafka at {settings.bootstrap} does not answer ({reason}): start it with `shardpost up`,"
        " or set SHARDPOST_BOOTSTRAP_SERVERS"
    )


def watermarks(
    settings: Settings, counts: Mapping[str, int], *, committed: bool
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return {topic: {partition: (low, high)}}.

    With `committed`, high is the last stable offset: the end of what readers of committed records
    may see; otherwise the high watermark.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    reader = consumer(settings, "shardpost-watermarks", **{"isolation.level": isolation})
    try:
        return {
            topic: {
                partition: _marks_of(settings, reader, topic, partition)
                for partition in range(count)
            }
            for topic, count in counts.items()
        }
    finally:
        reader.close()


def _marks_of(settings: Settings, reader: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Ask for low and high of one partition; while its leader moves, again."""
    place = TopicPartition(topic, partition)
    deadline = time.monotonic() + settings.kafka_timeout
    while True:
        try:
            low, high = reader.get_watermark_offsets(place, timeout=settings.kafka_timeout)
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                raise unreachable(settings, error) from None
            time.sleep(MOVING_SECONDS)
        else:
            return low, high


def read_to_end(
    settings: Settings,
    topic: str,
    partition: int,
    *,
    start: int | None = None,
    committed: bool = False,
    uncommitted: bool = False,
) -> Iterator[Message]:
    """Yield the committed records of one partition up to the high watermark as it is now.

    Waits, bounded by `kafka_timeout` without progress, for open transactions below that end to
    finish. With `committed` it ends before the first open transaction, and waits for none; with
    `uncommitted` it yields also what is not committed, or never was.
    """
    more: dict[str, Any] = {"enable.partition.eof": True, "fetch.queue.backoff.ms": 10}
    if uncommitted:
        more["isolation.level"] = "read_uncommitted"
    reader = consumer(settings, "shardpost-reader", **more)
    try:
        low, high = bounds(settings, topic, partition, committed=committed)
        position = max(low, start or 0)
        reader.assign([TopicPartition(topic, partition, position)])
        deadline = time.monotonic() + settings.kafka_timeout
        while position < high:
            for message in _next_batch(reader):
                if message.error():
                    _refuse(message, settings)
                elif (message.offset() or 0) < high:
                    yield message
            now_at = _position(reader, topic, partition, position)
            if now_at > position:
                position, deadline = now_at, time.monotonic() + settings.kafka_timeout
            elif time.monotonic() > deadline:
                raise KafkaUnreachableError(
                    f"{topic}[{partition}]@{position}: no progress to the end {high} for"
                    f" {settings.kafka_timeout:g} s: an open transaction, or the broker is gone"
                    " (docs/dead-letters.md: When something is wrong)"
                )
    finally:
        reader.close()


def _next_batch(reader: Consumer) -> list[Message]:
    """Return what is there at once, else wait for one message.

    `consume` would wait for a full batch.
    """
    there = reader.consume(BATCH, 0)
    if there:
        return there
    one = reader.poll(POLL_SECONDS)
    return [] if one is None else [one]  # a message without a value is false


def bounds(settings: Settings, topic: str, partition: int, *, committed: bool) -> tuple[int, int]:
    """Return low and high of one partition, as `watermarks` does."""
    isolation = "read_committed" if committed else "read_uncommitted"
    reader = consumer(settings, "shardpost-watermarks", **{"isolation.level": isolation})
    try:
        return _marks_of(settings, reader, topic, partition)
    finally:
        reader.close()


def _position(reader: Consumer, topic: str, partition: int, before: int) -> int:
    offset: int = reader.position([TopicPartition(topic, partition)])[0].offset
    return max(before, offset)


def _refuse(message: Message, settings: Settings) -> None:
    """Raise what a reader says of its partition, but for what passes by itself."""
    error = message.error()
    if error and error.code() not in (KafkaError._PARTITION_EOF, *_MOVING):
        raise unreachable(settings, KafkaException(error))


def committed(settings: Settings, reader: Consumer, topic: str, partition: int) -> int | None:
    """Return the offset that the reader's group has committed; None where it has none."""
    try:
        [place] = reader.committed(
            [TopicPartition(topic, partition)], timeout=settings.kafka_timeout
        )
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return int(place.offset) if place.offset >= 0 else None


def commit_offsets(settings: Settings, group: str, offsets: Offsets) -> None:
    """Commit offsets to a consumer group without being its member, for lag tools to see."""
    places = [
        TopicPartition(topic, partition, offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    ]
    client = consumer(settings, group)
    try:
        client.commit(offsets=places, asynchronous=False)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    finally:
        client.close()
