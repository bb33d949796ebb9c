"""Looks at a cluster: its topics, partitions, settings, brokers and open transactions."""

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Literal, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata, ConfigSource, ResourceType  # type: ignore[attr-defined]

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import TRANSIENT_ERRORS
from shardpost.kafka.greeting import level_at
from shardpost.kafka.kafka import LEADER_RETRY_SECONDS, Kafka, KafkaUnreachableError
from shardpost.kafka.offsets import endings
from shardpost.kafka.reading import open_transaction_at
from shardpost.kafka.records import TopicPartition
from shardpost.kafka.topic_metadata import describe_configs
from shardpost.topics.model.cluster import (
    INTERNAL,
    Behind,
    Cluster,
    Config,
    Expected,
    FoundTopic,
    Partition,
    Setting,
    Unknown,
    release,
)
from shardpost.topics.topics_file import TopicsFile
from shardpost.waiting import attempts

DESCRIBE_SECONDS = 10.0
VERSION_SECONDS = 5.0
# What looks like an old transaction may be a new one whose records have old timestamps.
ENDING_SECONDS = 5.0
POLL_SECONDS = 0.2


class Described(NamedTuple):
    """The settings; or None, and why."""

    entries: Config | None
    why: str = ""


def observe_topics(kafka: Kafka, names: Collection[str]) -> Cluster:
    """Return the cluster with those of the topics that exist, and their settings."""
    return _with_topics(kafka, kafka.metadata(), names)


def observe(kafka: Kafka, expected: Iterable[Expected]) -> Cluster:
    """Return all that the audit checks, including Kafka's own topics."""
    shown = kafka.metadata()
    names = [one.name for one in (*expected, *INTERNAL)]
    cluster = _with_topics(kafka, shown, names)
    of_brokers = brokers_described(kafka, cluster.brokers)
    not_described = [
        Unknown(None, f"settings of broker {id_}", _not_described(one, "cluster"))
        for id_, one in sorted(of_brokers.items())
        if one.entries is None
    ]
    releases: dict[int, str | None] = {}
    silent = []
    for broker in shown.brokers.values():
        try:
            level = level_at(kafka.config(), str(broker.host), broker.port, VERSION_SECONDS)
            releases[broker.id] = None if level is None else release(level)
        except (OSError, ValueError) as problem:
            why = f"{broker.host}:{broker.port}: {problem}"
            silent.append(Unknown(None, f"version of broker {broker.id}", why))
    behind, unread = _behind(kafka, cluster)
    return Cluster(
        cluster.id,
        cluster.brokers,
        cluster.topics,
        {id_: one.entries for id_, one in of_brokers.items() if one.entries is not None},
        releases,
        behind,
        (*cluster.unknown, *not_described, *silent, *unread),
    )


def require_cluster(kafka: Kafka, file: TopicsFile, cluster: Cluster) -> None:
    """Refuse a cluster that the file of topics is not meant for."""
    if file.cluster_id is not None and file.cluster_id != cluster.id:
        raise ShardpostError(
            f"Kafka at {kafka.bootstrap}: expected the cluster {file.cluster_id}, as in "
            f"SHARDPOST_TOPICS_FILE, found {cluster.id}: correct SHARDPOST_BOOTSTRAP_SERVERS or"
            " SHARDPOST_TOPICS_FILE"
        )


def _with_topics(kafka: Kafka, shown: ClusterMetadata, names: Collection[str]) -> Cluster:
    there = [name for name in dict.fromkeys(names) if name in shown.topics]
    settings, found = described(kafka, ResourceType.TOPIC, there), dict[str, FoundTopic]()
    for name in there:
        partitions = (one for _, one in sorted(shown.topics[name].partitions.items()))
        parts = (Partition(one.leader, (*one.replicas,), (*one.isrs,)) for one in partitions)
        found[name] = FoundTopic(tuple(parts), *settings[name])
    return Cluster(
        shown.cluster_id,
        frozenset(shown.brokers),
        found,
        unknown=tuple(
            Unknown(name, "settings", _not_described(settings[name], "topic"))
            for name in there
            if settings[name].entries is None
        ),
    )


def _not_described(found: Described, what: str) -> str:
    return f"{found.why}: requires permission DescribeConfigs on the {what}"


def _behind(kafka: Kafka, cluster: Cluster) -> tuple[tuple[Behind, ...], list[Unknown]]:
    """Return the open transactions, and what could not be asked, one for each topic."""
    asked = [
        TopicPartition(name, number)
        for name, topic in cluster.topics.items()
        for number, partition in enumerate(topic.partitions)
        if partition.leader >= 0
    ]
    high = endings(kafka, asked, committed=False)
    stable = endings(kafka, high.found, committed=True)
    ends = {one: end.offset for one, end in high.found.items()}
    readable = {one: end.offset for one, end in stable.found.items()}
    unread = [one for one, at in readable.items() if at < ends[one]]
    suspects = _still_open(kafka, unread, readable)
    since: dict[TopicPartition, datetime | None] = dict.fromkeys(suspects)
    for one in suspects:
        with suppress(KafkaUnreachableError):
            since[one] = open_transaction_at(kafka, one.at(readable[one])).since
    # Whose age cannot be read may have ended meanwhile.
    ageless = [one for one, at in since.items() if at is None]
    still = {*_still_open(kafka, ageless, readable)}
    behind = tuple(
        Behind(*one, readable[one], ends[one], at)
        for one, at in since.items()
        if at is not None or one in still
    )
    unknown = {one.topic: why for one, why in {**high.failed, **stable.failed}.items()}
    return behind, [Unknown(topic, "offsets", why) for topic, why in unknown.items()]


def _still_open(
    kafka: Kafka, suspects: list[TopicPartition], stable: dict[TopicPartition, int]
) -> list[TopicPartition]:
    """Return those where the same transaction is still open some seconds later."""
    deadline = time.monotonic() + ENDING_SECONDS
    while suspects and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        now = endings(kafka, suspects, committed=True).found
        suspects = [one for one in suspects if one not in now or now[one].offset == stable[one]]
    return suspects


def brokers_described(kafka: Kafka, brokers: Iterable[int]) -> dict[int, Described]:
    """Return the settings of brokers, each asked itself."""
    found = described(kafka, ResourceType.BROKER, [str(one) for one in brokers])
    return {int(broker): one for broker, one in found.items()}


def described(kafka: Kafka, kind: ResourceType, names: list[str]) -> dict[str, Described]:
    """Return the settings of topics, or of brokers, that exist."""
    found, left = dict[str, Described](), names
    for _ in attempts(min(DESCRIBE_SECONDS, kafka.timeout), LEADER_RETRY_SECONDS):
        failed = list[str]()
        for name, future in describe_configs(kafka, kind, left):
            try:
                entries = future.result().items()
                found[name] = Described(
                    {n: Setting(e.value, _source(e.source)) for n, e in entries}
                )
            except KafkaException as error:
                found[name] = Described(None, error.args[0].str())
                if error.args[0].code() in TRANSIENT_ERRORS:
                    failed.append(name)
        left = failed
        if not left:
            break
    return found


def _source(source: ConfigSource) -> Literal["topic", "broker", "default"]:
    found = ConfigSource(source)  # a client gives numbers
    if found is ConfigSource.DYNAMIC_TOPIC_CONFIG:
        return "topic"
    return "default" if found is ConfigSource.DEFAULT_CONFIG else "broker"
