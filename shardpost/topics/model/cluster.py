"""A cluster as it should be and as it was found, as plain values for the plan and the audit."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from shardpost.values.topic_names import TopicName

# The highest `metadata.version` of each release, of org.apache.kafka.server.common.MetadataVersion.
LEVELS = {21: "3.9 or older", 25: "4.0", 27: "4.1", 29: "4.2"}
NEWER = "4.3 or newer"
WITHOUT_LOSS = "Kafka 4.2, or a release with the fix"
WHICH_RELEASE = "docs/decisions/0015-pin-kafka-4-2-and-spark-4-0.md"


def release(level: int) -> str:
    """Return the release whose newest metadata version has that level."""
    return next((name for highest, name in LEVELS.items() if level <= highest), NEWER)


def known_loss(found: str) -> str | None:
    """Return what a release is known to lose; None if nothing."""
    if found == NEWER:
        return (
            "loses ends of transactions when a broker starts while a partition has no leader"
            " (KAFKA-20734)"
        )
    return None


IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
# With three replicas and two of them written, one broker may fail and nothing is lost or blocked.
REPLICAS = 3
IN_SYNC_OF_THREE = 2


@dataclass(frozen=True)
class Expected:
    """A declared topic under its name in this cluster.

    `partitions` is None where nothing was declared: then a new topic gets as many as the largest of
    `partitions_as` has, or else the default. `product` is its name in the contract; None for a
    topic of the user's own. `is_own_store`: Shardpost alone writes it, always with keys, of which
    only the last record matters.
    """

    name: str
    config: Mapping[str, str]
    replicas: int
    partitions: int | None = None
    partitions_as: Collection[str] = ()
    keyed: bool = True
    product: TopicName | None = None
    is_own_store: bool = False
    is_internal: bool = False


def with_in_sync(config: Mapping[str, str], replicas: int) -> dict[str, str]:
    """Return settings with as many replicas in sync as that many replicas allow."""
    least = {IN_SYNC: str(IN_SYNC_OF_THREE)} if replicas >= REPLICAS else {}
    return {**least, **config}


# Kafka creates them itself; offsets of groups and the ends of transactions are in them.
INTERNAL = tuple(
    Expected(
        name,
        {"cleanup.policy": "compact", UNCLEAN: "false", IN_SYNC: str(IN_SYNC_OF_THREE)},
        REPLICAS,
        is_internal=True,
    )
    for name in ("__consumer_offsets", "__transaction_state")
)


# Where a value comes from: set on the topic, set on the brokers, Kafka's own default; `cluster` is
# a state and no setting.
Source = Literal["topic", "broker", "default", "cluster"]


class Setting(NamedTuple):
    """An effective value; None where Kafka does not say it."""

    value: str | None
    source: Source


Config = Mapping[str, Setting]


@dataclass(frozen=True)
class Partition:
    """Broker ids; `leader` is negative where there is none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class FoundTopic:
    """A topic as it is; `config` is None where Kafka does not say it, and `unknown` says why."""

    partitions: tuple[Partition, ...]
    config: Config | None
    unknown: str = ""

    @property
    def replicas(self) -> int:
        """Return the smallest number of replicas of its partitions."""
        return min((len(one.replicas) for one in self.partitions), default=0)

    def value(self, setting: str) -> str | None:
        """Return an effective value; None where it is not known."""
        found = self.config.get(setting) if self.config else None
        return found.value if found else None


class Behind(NamedTuple):
    """A last stable offset below the high watermark: an open transaction begins there.

    `since` is the timestamp of its first record; None where it has none, or cannot be read.
    """

    topic: str
    partition: int
    stable: int
    high: int
    since: datetime | None


class Unknown(NamedTuple):
    """What could not be queried, and why; `topic` is None if it concerns the cluster."""

    topic: str | None
    what: str
    why: str


@dataclass(frozen=True)
class Cluster:
    """A cluster and its topics, as far as it was looked at.

    `brokers` are those that answer; `configs` has the settings of each, `releases` the Kafka
    release of each: None where it does not say.
    """

    id: str | None
    brokers: frozenset[int]
    topics: Mapping[str, FoundTopic]
    configs: Mapping[int, Config] = field(default_factory=dict)
    releases: Mapping[int, str | None] = field(default_factory=dict)
    behind: tuple[Behind, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    @property
    def known_brokers(self) -> frozenset[int]:
        """Return the brokers that answer, and those that have replicas and do not."""
        replicas = {
            broker
            for topic in self.topics.values()
            for partition in topic.partitions
            for broker in partition.replicas
        }
        return self.brokers | replicas


@dataclass(frozen=True)
class Built:
    """What the tables were built with: partitions read of each input, shards of the holders.

    `scattered` names, by topic, keys that were lately found in several partitions, in words.
    """

    snapshot: int
    partitions: Mapping[str, int]
    holders: str
    shards: int
    scattered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """A cluster beside what is expected of it.

    `built` is None without a snapshot; `request_days` is how old a run request may be.
    """

    cluster: Cluster
    expected: tuple[Expected, ...]
    bootstrap: str
    now: datetime
    built: Built | None = None
    request_days: int = 6

    @property
    def there(self) -> Iterator[tuple[Expected, FoundTopic]]:
        """Yield each topic that exists, Kafka's own at the end."""
        for one in (*self.expected, *INTERNAL):
            if one.name in self.cluster.topics:
                yield one, self.cluster.topics[one.name]

    @property
    def has_few_brokers(self) -> bool:
        """Tell whether three replicas are impossible; reported once, not for each topic."""
        return len(self.cluster.known_brokers) < REPLICAS

    def product(self, name: str) -> tuple[str, FoundTopic | None]:
        """Return one of the product's topics: its name in the cluster, and what was found."""
        topic = next((one.name for one in self.expected if one.product == name), name)
        return topic, self.cluster.topics.get(topic)
