"""The declared topics: whether they exist, and how they depart from their declaration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardpost.doctor.finding import Finding, error, ok, warning
from shardpost.kafka.clients import admin
from shardpost.kafka.topic_configs import TopicConfig, topic_configs
from shardpost.settings import Settings
from shardpost.topics.declared import DECLARED, RUN_COMMANDS, RUN_REQUESTS, TopicSpec

# A topic may keep more, for longer, and larger records than declared; never less.
AT_LEAST = (
    "min.compaction.lag.ms",
    "delete.retention.ms",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
)
EXACTLY = ("cleanup.policy", "message.timestamp.type")
UNLIMITED = -1


@dataclass(frozen=True)
class Cluster:
    """What Kafka says of itself: how many brokers; {topic: (partitions, fewest replicas)}."""

    brokers: int
    topics: Mapping[str, tuple[int, int]]


def describe(settings: Settings) -> Cluster:
    """Return the cluster as it is; Kafka answers."""
    found = admin(settings).list_topics(timeout=settings.kafka_timeout)
    topics = {
        name: (
            len(topic.partitions),
            min((len(part.replicas) for part in topic.partitions.values()), default=0),
        )
        for name, topic in found.topics.items()
    }
    return Cluster(len(found.brokers), topics)


def check(settings: Settings, cluster: Cluster) -> Iterator[Finding]:
    """Check all declared topics."""
    counts = {name: partitions for name, (partitions, _) in cluster.topics.items()}
    there = [spec for spec in DECLARED if settings.topic(spec.name) in counts]
    missing = [settings.topic(spec.name) for spec in DECLARED if spec not in there]
    found: list[Finding] = []
    if missing:
        said = f"missing: {', '.join(missing)}"
        found.append(error("topics", said, "all declared topics", "shardpost topics apply"))
    found += _of_partitions(settings, counts)
    found += unreplicated(cluster, [settings.topic(spec.name) for spec in there])
    configs = topic_configs(settings, [settings.topic(spec.name) for spec in there])
    for spec in there:
        found += departures(settings, spec, configs[settings.topic(spec.name)])
    said = f"all {len(there)} are there, as declared{_of_other_counts(settings, there, counts)}"
    yield from found or [ok("topics", said)]


def _of_other_counts(
    settings: Settings, there: Sequence[TopicSpec], counts: Mapping[str, int]
) -> str:
    """Return what to add where topics were created with another number of partitions."""
    other = [spec for spec in there if counts[settings.topic(spec.name)] != settings.partitions]
    if not other:
        return ""
    name = settings.topic(other[0].name)
    return (
        f"; {len(other)} of them were created with another number of partitions than"
        f" SHARDPOST_PARTITIONS={settings.partitions}, which is for new topics: {name} has"
        f" {counts[name]}"
    )


def _of_partitions(settings: Settings, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Check the topics that have to have the same number of partitions."""
    requests, commands = (settings.topic(spec.name) for spec in (RUN_REQUESTS, RUN_COMMANDS))
    if {requests, commands} <= counts.keys() and counts[requests] != counts[commands]:
        yield error(
            f"topic {commands}",
            f"{counts[commands]} partitions",
            f"{counts[requests]}, as {requests} has",
            "let all runs end, then delete both topics and run `shardpost topics apply`",
        )


def unreplicated(cluster: Cluster, topics: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding if a cluster of several brokers has only one copy of a topic."""
    single = [topic for topic in topics if cluster.topics[topic][1] == 1]
    if cluster.brokers > 1 and single:
        yield warning(
            "replicas",
            f"one replica, on a cluster of {cluster.brokers} brokers: {', '.join(single)}",
            "three, and min.insync.replicas=2: with the disk of a broker, what is there is lost",
            "kafka-reassign-partitions.sh; set SHARDPOST_REPLICATION_FACTOR for new topics",
        )


def departures(settings: Settings, spec: TopicSpec, config: TopicConfig) -> Iterator[Finding]:
    """Yield how a topic's configuration in force departs from its declaration."""
    name = settings.topic(spec.name)
    for setting, expected in spec.config.items():
        found = config.get(setting)
        if found is None or _is_as_declared(setting, expected, found):
            continue
        make = error if setting == "cleanup.policy" else warning
        wanted = f"{setting}={expected}{' or more' if setting in AT_LEAST else ''}"
        cure = (
            f"kafka-configs.sh --bootstrap-server {settings.bootstrap} --alter --entity-type topics"
            f" --entity-name {name} --add-config {setting}={expected}"
        )
        yield make(f"topic {name}", f"{setting}={found}", wanted, cure)


def _is_as_declared(setting: str, expected: str, found: str) -> bool:
    if setting in EXACTLY:
        return set(found.split(",")) == set(expected.split(","))
    if setting not in AT_LEAST or int(found) == UNLIMITED:
        return True
    return int(expected) != UNLIMITED and int(found) >= int(expected)
