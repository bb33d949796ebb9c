"""What a cluster was found to be: plain values that the plan and the rules look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

# Where a value comes from: set on the topic, set on the brokers, Kafka's own default; `cluster` is
# a state and no setting, `shardpost` a setting of ours.
Source = Literal["topic", "broker", "default", "cluster", "shardpost"]


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
        """Return how many replicas that partition has which has fewest."""
        return min((len(one.replicas) for one in self.partitions), default=0)

    @property
    def in_sync(self) -> int:
        """Return how many replicas are in sync where these are fewest."""
        return min((len(one.in_sync) for one in self.partitions), default=0)

    def value(self, setting: str) -> str | None:
        """Return an effective value; None where it is not known."""
        found = self.config.get(setting) if self.config else None
        return found.value if found else None


class Behind(NamedTuple):
    """A last stable offset below the high watermark: an open transaction begins there.

    `since` is the timestamp of its first record; None where there was none to read.
    """

    topic: str
    partition: int
    stable: int
    high: int
    since: datetime | None


class Unknown(NamedTuple):
    """What could not be asked, and why; `topic` is None where it concerns the cluster."""

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
    """What the tables were built with: partitions read of each input, shards of the holders."""

    snapshot: int
    partitions: Mapping[str, int]
    holders: str
    shards: int
