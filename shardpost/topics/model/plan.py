"""What `topics apply` does: from declared topics and existing ones to changes and refusals.

More than declared is as declared: a topic may keep more, for longer, and larger records.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardpost.topics.model import finding
from shardpost.topics.model.cluster import IN_SYNC, UNCLEAN, Cluster, Expected, FoundTopic
from shardpost.wording import counted

POLICY = "cleanup.policy"
TIMESTAMPS = "message.timestamp.type"
UNLIMITED = -1

_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# Less than declared loses records, or refuses them.
AT_LEAST = frozenset(
    {
        "delete.retention.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        IN_SYNC,
    }
)
# They say when a segment ends, and when and how the log cleaner compacts what it may compact. No
# value of them has records deleted sooner than the settings above allow.
FREE = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)


def is_as_declared(setting: str, expected: str, found: str) -> bool:
    """Tell whether a value is the declared one, or is as good."""
    if setting == POLICY:
        return policies(found) == policies(expected)
    if setting not in AT_LEAST:
        return _same(expected, found)
    if not (_WHOLE.fullmatch(expected) and _WHOLE.fullmatch(found)):
        return expected == found
    return int(found) == UNLIMITED or (int(expected) != UNLIMITED and int(found) >= int(expected))


def departures(expected: Expected, found: FoundTopic) -> dict[str, tuple[str, str]]:
    """Return {setting: (found, expected)} of what is not as declared; unknown values are not."""
    return {
        setting: (value, wanted)
        for setting, wanted in expected.config.items()
        if (value := found.value(setting)) is not None
        and not is_as_declared(setting, wanted, value)
    }


def why_unsafe(setting: str, expected: Expected, found: FoundTopic) -> str | None:
    """Return why a setting is not changed to what is declared; None if nothing can be lost by it.

    The setting is not as declared.
    """
    value, wanted = str(found.value(setting)), expected.config[setting]
    if setting == POLICY:
        return _why_not_policy(
            policies(value), policies(wanted), is_own_store=expected.is_own_store
        )
    if setting == IN_SYNC:
        return _why_not_in_sync(int(wanted), found)
    if setting == UNCLEAN:
        return None if wanted == "false" else "an unclean election loses records"
    if setting == TIMESTAMPS:
        return None if wanted == "LogAppendTime" else "retention would count from producers' clocks"
    if setting in AT_LEAST | FREE:
        return None
    return "whether records can be lost by it is not known"


def policies(text: str) -> frozenset[str]:
    """Return the policies of a list; Kafka takes them in any order."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _why_not_policy(
    found: frozenset[str], wanted: frozenset[str], *, is_own_store: bool
) -> str | None:
    if wanted < found:  # one way less in which records go
        return None
    if wanted == {"compact"}:
        return (
            None
            if is_own_store
            else "Kafka would remove records without a key, and all but the last of each key: other"
            " readers may need them"
        )
    return "Kafka would begin to delete records by their age and size"


def _why_not_in_sync(wanted: int, found: FoundTopic) -> str | None:
    if found.replicas <= wanted:
        return (
            f"with {counted(found.replicas, 'replica')}, nothing could be written while one broker"
            " is away: add replicas first"
        )
    if found.in_sync < wanted:
        only = counted(found.in_sync, "replica is", "replicas are")
        return f"only {only} in sync, and nothing could be written: wait for more"
    return None


def _same(expected: str, found: str) -> bool:
    if _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(found):
        return float(expected) == float(found)
    return expected.lower() == found.lower()


@dataclass(frozen=True)
class Change:
    """A setting, or `partitions`, that is changed: what it is, and what it will be."""

    setting: str
    found: str
    to: str

    def __str__(self) -> str:
        return f"{self.setting} {self.found} -> {self.to}"


@dataclass(frozen=True)
class Refusal:
    """What is not as declared and stays so: why, and the command of a person who wants it."""

    setting: str
    found: str
    expected: str
    why: str
    fix: str

    def __str__(self) -> str:
        return (
            f"left alone: {self.setting} is {self.found}, expected {self.expected}: {self.why}"
            f" (`{self.fix}`)"
        )


@dataclass(frozen=True)
class TopicPlan:
    """What is to be done for one topic; `partitions` is how many it has afterwards."""

    expected: Expected
    partitions: int
    create: bool = False
    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def topic(self) -> str:
        """Return its name in the cluster."""
        return self.expected.name

    @property
    def configs(self) -> dict[str, str]:
        """Return {setting: value} of what is altered; partitions are none."""
        return {one.setting: one.to for one in self.changes if one.setting != PARTITIONS}

    @property
    def adds_partitions(self) -> bool:
        """Tell whether partitions are added."""
        return any(one.setting == PARTITIONS for one in self.changes)


PARTITIONS = "partitions"
REPLICAS = "replication.factor"


@dataclass(frozen=True)
class Planner:
    """Makes the plan of each topic; `partitions` is the default of those that are created."""

    cluster: Cluster
    bootstrap: str
    partitions: int
    expected: Mapping[str, Expected] = field(default_factory=dict)

    def plan(self, one: Expected) -> TopicPlan:
        """Return what is to be done for one topic."""
        found = self.cluster.topics.get(one.name)
        if found is not None:
            return self._repair(one, found)
        largest = max(map(self._count_of, one.partitions_as), default=self.partitions)
        count = largest if one.partitions is None else one.partitions
        return TopicPlan(one, count, create=True)

    def _count_of(self, name: str) -> int:
        if name in self.cluster.topics:
            return len(self.cluster.topics[name].partitions)
        other = self.expected.get(name)
        return (other.partitions if other else None) or self.partitions

    def _repair(self, one: Expected, found: FoundTopic) -> TopicPlan:
        steps = [
            *_of_unread(found),
            *self._of_configs(one, found),
            *self._of_partitions(one, len(found.partitions)),
            *self._of_replicas(one, found),
        ]
        changes = tuple(step for step in steps if isinstance(step, Change))
        refusals = tuple(step for step in steps if isinstance(step, Refusal))
        planned = TopicPlan(one, len(found.partitions), changes=changes, refusals=refusals)
        if planned.adds_partitions and one.partitions:
            return replace(planned, partitions=one.partitions)
        return planned

    def _of_configs(self, one: Expected, found: FoundTopic) -> Iterator[Change | Refusal]:
        for setting, (value, wanted) in departures(one, found).items():
            if why := why_unsafe(setting, one, found):
                fix = finding.set_on_topic(self.bootstrap, one.name, setting, wanted)
                yield Refusal(setting, value, wanted, why, fix)
            else:
                yield Change(setting, value, wanted)

    def _of_partitions(self, one: Expected, count: int) -> Iterator[Change | Refusal]:
        wanted = one.partitions
        if wanted is None or wanted == count:
            return
        if wanted > count and not one.keyed:
            yield Change(PARTITIONS, str(count), str(wanted))
        elif wanted > count:
            why = "the records of a key would be in two partitions, in no order"
            declare = f"declare {counted(count, 'partition')} of {one.name}"
            fix = f"{declare}, or keyed: false if no key is there"
            yield Refusal(PARTITIONS, str(count), str(wanted), why, fix)
        else:
            why = "Kafka removes no partitions"
            fix = f"create another topic, or declare {counted(count, 'partition')} of {one.name}"
            yield Refusal(PARTITIONS, str(count), str(wanted), why, fix)

    def _of_replicas(self, one: Expected, found: FoundTopic) -> Iterator[Refusal]:
        if found.replicas < one.replicas:
            yield Refusal(
                REPLICAS,
                str(found.replicas),
                str(one.replicas),
                "replicas are copied over the network, at a time that a person chooses",
                finding.reassign(
                    self.bootstrap, one.name, found, self.cluster.brokers, one.replicas
                ),
            )


def plan_changes(
    expected: Sequence[Expected], cluster: Cluster, *, bootstrap: str, partitions: int
) -> list[TopicPlan]:
    """Return what is to be done for each topic; `partitions` is the default of new ones."""
    planner = Planner(cluster, bootstrap, partitions, {one.name: one for one in expected})
    return [planner.plan(one) for one in expected]


def _of_unread(found: FoundTopic) -> Iterator[Refusal]:
    if found.config is None:
        fix = "allow DescribeConfigs on this topic for this user"
        yield Refusal("settings", "unknown", "as declared", found.unknown, fix)
