"""Creates the declared topics that are missing; does not change those that exist."""

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
from shardpost.kafka.clients import admin, unreachable
from shardpost.kafka.offsets import watermarks
from shardpost.settings import Settings
from shardpost.topics.declared import (
    DECLARED,
    INPUTS,
    PARTITIONS_AS,
    PARTITIONS_AS_LARGEST_ORIGIN,
    TopicSpec,
)
from shardpost.topics.starter import write_starter_records

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class AppliedTopic:
    """What was done for one topic: created or not, and how many starter records were written."""

    topic: str
    partitions: int
    created: bool
    starter: int

    def as_json(self) -> dict[str, Any]:
        """Return the form of `topics apply --json`."""
        return asdict(self)

    def as_text(self) -> str:
        """Return the same as text."""
        done = f"created with {self.partitions} partitions" if self.created else "exists"
        starter = f", {self.starter} starter records written" if self.starter else ""
        return f"topic {self.topic}: {done}{starter}"


def apply_topics(settings: Settings) -> list[AppliedTopic]:
    """Create what is missing, and write the starter records of a topic without any.

    May run twice at the same time.
    """
    client = admin(settings)
    created = _create_missing(settings, client)
    known = _await_leaders(settings, client)
    return [_applied(settings, spec, known, created) for spec in DECLARED]


def _applied(
    settings: Settings, spec: TopicSpec, known: dict[str, TopicMetadata], created: set[str]
) -> AppliedTopic:
    name = settings.topic(spec.name)
    count = len(known[name].partitions)
    starter = write_starter_records(settings, spec, count) if spec.starter else 0
    return AppliedTopic(name, count, name in created, starter)


def _create_missing(settings: Settings, client: AdminClient) -> set[str]:
    """Return the names of the topics that this very call created."""
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
    timeout = settings.kafka_timeout
    futures = client.create_topics(missing, operation_timeout=timeout, request_timeout=timeout)
    return {name for name, future in futures.items() if _was_created(name, future)}


def _partitions(settings: Settings, spec: TopicSpec, known: Mapping[str, TopicMetadata]) -> int:
    """Return how many partitions a new topic gets."""
    if spec.name in PARTITIONS_AS_LARGEST_ORIGIN:
        origins = {settings.topic(topic.name) for topic in INPUTS}
        return _largest(settings, origins | settings.retry_rules.of_origin.keys(), known)
    other = known.get(settings.topic(PARTITIONS_AS.get(spec.name, spec.name)))
    return len(other.partitions) if other else settings.partitions


def _largest(settings: Settings, topics: set[str], known: Mapping[str, TopicMetadata]) -> int:
    """Return the most partitions of these topics; one that is missing will have the default."""
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
    """Return the declared topics once the leader of every partition answers.

    A new partition's leader is in the metadata a moment before it answers requests.
    """
    names = [settings.topic(spec.name) for spec in DECLARED]
    deadline = time.monotonic() + settings.kafka_timeout
    while True:
        known = _topics(settings, client)
        if all(name in known and _has_leaders(known[name]) for name in names):
            counts = {name: len(known[name].partitions) for name in names}
            watermarks(settings, counts, committed=True)
            return known
        if time.monotonic() > deadline:
            raise ShardpostError(
                f"no leader for every partition of {', '.join(names)} at {settings.bootstrap}"
                f" after {settings.kafka_timeout:g} s: see the broker's log"
            )
        time.sleep(POLL_SECONDS)


def _has_leaders(topic: TopicMetadata) -> bool:
    return not topic.error and all(part.leader >= 0 for part in topic.partitions.values())


def _topics(settings: Settings, client: AdminClient) -> dict[str, TopicMetadata]:
    try:
        return dict(client.list_topics(timeout=settings.kafka_timeout).topics)
    except KafkaException as error:
        raise unreachable(settings, error) from None
