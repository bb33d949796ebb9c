"""Creates the declared topics that are missing; leaves those that are there alone."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    TopicMetadata,
)

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import admin, transactional_producer, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings
from shardpost.topics.declared import AS_LARGEST, AS_MANY_AS, DECLARED, INPUTS, TopicSpec

POLL_SECONDS = 0.1
RIVAL_SECONDS = 1.0


@dataclass(frozen=True)
class Applied:
    """What was done for one topic: created or not, and how many starter records it was given."""

    topic: str
    partitions: int
    created: bool
    starter: int

    def as_json(self) -> dict[str, Any]:
        """Return the form of `topics apply --json`."""
        return asdict(self)

    def as_text(self) -> str:
        """Return what was done, in words."""
        done = f"created with {self.partitions} partitions" if self.created else "was there"
        given = f", given its starter list of {self.starter}" if self.starter else ""
        return f"topic {self.topic}: {done}{given}"


def apply_topics(settings: Settings) -> list[Applied]:
    """Create what is missing, fill an `exchanges` without a record; may run twice at once."""
    client = admin(settings)
    created = _create(settings, client)
    known = _await_leaders(settings, client)
    return [_applied(settings, spec, known, created) for spec in DECLARED]


def _applied(
    settings: Settings, spec: TopicSpec, known: dict[str, TopicMetadata], created: set[str]
) -> Applied:
    name = settings.topic(spec.name)
    count = len(known[name].partitions)
    starter = _give_starter(settings, spec, count) if spec.starter else 0
    return Applied(name, count, name in created, starter)


def _create(settings: Settings, client: AdminClient) -> set[str]:
    """Return the names of those topics that this very call created."""
    known = _topics(settings, client)
    missing = [
        NewTopic(
            settings.topic(spec.name),
            num_partitions=_partitions(settings, spec, known),
            replication_factor=settings.replication_factor,
            config=spec.config,
        )
        for spec in DECLARED
        if settings.topic(spec.name) not in known
    ]
    if not missing:
        return set()
    wait = settings.kafka_timeout
    futures = client.create_topics(missing, operation_timeout=wait, request_timeout=wait)
    return {name for name, future in futures.items() if _was_created(name, future)}


def _partitions(settings: Settings, spec: TopicSpec, known: Mapping[str, TopicMetadata]) -> int:
    """Return how many partitions a new topic gets."""
    if spec.name in AS_LARGEST:
        origins = {settings.topic(topic.name) for topic in INPUTS}
        return _largest(settings, origins | settings.retry_rules.of_origin.keys(), known)
    other = known.get(settings.topic(AS_MANY_AS.get(spec.name, spec.name)))
    return len(other.partitions) if other else settings.partitions


def _largest(settings: Settings, topics: set[str], known: Mapping[str, TopicMetadata]) -> int:
    """Return the most partitions of these topics; one that is not there will have the default."""
    counts = [len(known[name].partitions) for name in topics if name in known]
    return max([*counts, *([settings.partitions] if len(counts) < len(topics) else [])])


def _was_created(name: str, future: "Future[None]") -> bool:
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise ShardpostError(f"topic {name} cannot be created: {error.args[0].str()}") from None
    return True


def _await_leaders(settings: Settings, client: AdminClient) -> dict[str, TopicMetadata]:
    """Return the declared topics once every partition of them is answered for by its leader.

    A new partition's leader is in the metadata a moment before it takes up its work.
    """
    names = [settings.topic(spec.name) for spec in DECLARED]
    deadline = time.monotonic() + settings.kafka_timeout
    while True:
        known = _topics(settings, client)
        if all(name in known and _led(known[name]) for name in names):
            counts = {name: len(known[name].partitions) for name in names}
            watermarks(settings, counts, committed=True)
            return known
        if time.monotonic() > deadline:
            raise ShardpostError(
                f"no leader for every partition of {', '.join(names)} at {settings.bootstrap}"
                f" after {settings.kafka_timeout:g} s: see the broker's log"
            )
        time.sleep(POLL_SECONDS)


def _led(topic: TopicMetadata) -> bool:
    return not topic.error and all(part.leader >= 0 for part in topic.partitions.values())


def _topics(settings: Settings, client: AdminClient) -> dict[str, TopicMetadata]:
    try:
        return dict(client.list_topics(timeout=settings.kafka_timeout).topics)
    except KafkaException as error:
        raise unreachable(settings, error) from None


def _give_starter(settings: Settings, spec: TopicSpec, partitions: int) -> int:
    """Give a topic without any record its starter list, in one transaction; return how many.

    Whoever is killed in it leaves no record that counts, so the next call gives the whole list.
    Of two at once the later fences the earlier, which then finds the other's list.
    """
    topic = settings.topic(spec.name)
    deadline = time.monotonic() + settings.kafka_timeout
    while not _holds_records(settings, topic, partitions):
        try:
            return _fill(settings, spec, partitions)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise unreachable(settings, error) from None
            time.sleep(RIVAL_SECONDS)
    return 0


def _fill(settings: Settings, spec: TopicSpec, partitions: int) -> int:
    topic = settings.topic(spec.name)
    producer = transactional_producer(settings, f"starter/{topic}")
    producer.init_transactions(settings.kafka_timeout)
    if _holds_records(settings, topic, partitions):
        return 0
    producer.begin_transaction()
    for key, value in spec.starter.items():
        producer.produce(topic, json.dumps(value).encode(), key.encode())
    producer.commit_transaction(settings.kafka_timeout)
    return len(spec.starter)


def _holds_records(settings: Settings, topic: str, partitions: int) -> bool:
    """Tell whether the topic has a committed record; what was broken off is none."""
    ends = watermarks(settings, {topic: partitions}, committed=True)[topic]
    return any(
        next(read_to_end(settings, TopicPartition(topic, partition)), None) is not None
        for partition, (low, end) in ends.items()
        if end > low
    )
