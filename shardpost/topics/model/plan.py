"""What `topics apply` does: from declared topics and existing ones to changes and refusals.

More than declared is as declared: a topic may keep more, for longer, and larger records.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    """Tell whether a value is as declared, or better."""
    if setting == POLICY:
        return policies(found) == policies(expected)
    if setting in AT_LEAST and _WHOLE.fullmatch(expected) and _WHOLE.fullmatch(found):
        least = int(expected)
        return int(found) == UNLIMITED or (least != UNLIMITED and int(found) >= least)
    if setting not in AT_LEAST and _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(found):
        return float(expected) == float(found)
    return expected.lower() == found.lower()


def departures(expected: Expected, found: FoundTopic) -> dict[str, tuple[str, str]]:
    """Return {setting: (found, expected)} of what is not as declared; unknown values are not."""
    return {
        setting: (value, wanted)
        for setting, wanted in expected.config.items()
        if (value := found.value(setting)) is not None
        and not is_as_declared(setting, wanted, value)
    }


def why_not_changed(setting: str, expected: Expected, found: FoundTopic) -> str | None:
    """Return why a departure is not repaired; None if nothing can be lost."""
    wanted = expected.config[setting]
    if setting == POLICY:
        now, then = policies(str(found.value(setting))), policies(wanted)
        # One way less in which records go; or what can be compacted at any time.
        if then < now or (then == {"compact"} and expected.is_own_store):
            return None
        if then == {"compact"}:
            return (
                "Kafka would remove records without a key, and all but the last record of each"
                " key: other readers may need them"
            )
        return "Kafka would begin to delete records by their age and size"
    if setting == IN_SYNC:
        return _why_not_in_sync(int(wanted), found)
    if setting == UNCLEAN:
        return None if wanted == "false" else "an unclean election loses records"
    if setting == TIMESTAMPS:
        return None if wanted == "LogAppendTime" else "retention would count from producers' clocks"
    if setting in AT_LEAST | FREE:
        return None
    return "it is unknown whether records can be lost"


def policies(text: str) -> frozenset[str]:
    """Return the policies of a list; Kafka takes them in any order."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _why_not_in_sync(wanted: int, found: FoundTopic) -> str | None:
    if found.replicas <= wanted:
        return (
            f"with {counted(found.replicas, 'replica')}, nothing could be written while a broker"
            " is down: add replicas first"
        )
    in_sync = min((len(one.in_sync) for one in found.partitions), default=0)
    if in_sync < wanted:
        only = counted(in_sync, "replica is", "replicas are")
        return f"only {only} in sync, so nothing could be written: wait for more"
    return None


@dataclass(frozen=True)
class Step:
    """A setting, or `partitions`, that is not as declared, and is changed unless `why` says not.

    `fix` is then the command of a person who wants it.
    """

    setting: str
    found: str
    expected: str
    why: str | None = None
    fix: str = finding.APPLY

    def __str__(self) -> str:
        if self.why is None:
            return f"{self.setting} {self.found} -> {self.expected}"
        return (
            f"not changed: {self.setting} is {self.found}, expected {self.expected}: {self.why}"
            f" (`{self.fix}`)"
        )


@dataclass(frozen=True)
class TopicPlan:
    """The plan for one topic; `partitions` is how many it has afterwards."""

    expected: Expected
    partitions: int
    create: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def changes(self) -> list[Step]:
        """What is changed."""
        return [one for one in self.steps if one.why is None]

    @property
    def refusals(self) -> list[Step]:
        """What stays as it is."""
        return [one for one in self.steps if one.why is not None]

    @property
    def topic(self) -> str:
        """Its name in the cluster."""
        return self.expected.name

    @property
    def configs(self) -> dict[str, str]:
        """Return {setting: value} of what is altered; partitions are none."""
        return {one.setting: one.expected for one in self.changes if one.setting != PARTITIONS}

    @property
    def adds_partitions(self) -> bool:
        """Whether partitions are added."""
        return any(one.setting == PARTITIONS for one in self.changes)


PARTITIONS = "partitions"
REPLICAS = "replication.factor"


def plan_changes(
    expected: Sequence[Expected], cluster: Cluster, *, bootstrap: str, partitions: int
) -> list[TopicPlan]:
    """Return the plan for each topic; `partitions` is the default for new topics."""
    declared = {one.name: one.partitions for one in expected if one.partitions}
    counts = declared | {name: len(one.partitions) for name, one in cluster.topics.items()}
    plans = []
    for one in expected:
        largest = max(
            (counts.get(name, partitions) for name in one.partitions_as), default=partitions
        )
        plan = TopicPlan(one, one.partitions or largest, create=True)
        found = cluster.topics.get(one.name)
        plans.append(_repair(one, found, cluster, bootstrap) if found else plan)
    return plans


def _repair(one: Expected, found: FoundTopic, cluster: Cluster, bootstrap: str) -> TopicPlan:
    found_steps = list(steps(one, found, bootstrap))
    if found.config is None:
        fix = "grant this user DescribeConfigs on this topic"
        found_steps.append(Step("settings", "unknown", "as declared", found.unknown, fix))
    if found.replicas < one.replicas:
        why = "copying replicas loads the network, so a person chooses the time"
        fix = finding.reassign(bootstrap, one.name, found, cluster.brokers, one.replicas)
        replicas = Step(REPLICAS, str(found.replicas), str(one.replicas), why, fix)
        found_steps.append(replicas)
    planned = TopicPlan(one, len(found.partitions), steps=tuple(found_steps))
    if planned.adds_partitions and one.partitions:
        return replace(planned, partitions=one.partitions)
    return planned


def steps(one: Expected, found: FoundTopic, bootstrap: str) -> Iterator[Step]:
    """Yield a step for each setting that is not as declared, and for the partitions."""
    for setting, (value, wanted) in departures(one, found).items():
        why = "Kafka's own topic" if one.is_internal else why_not_changed(setting, one, found)
        fix = finding.set_on_topic(bootstrap, one.name, setting, wanted) if why else finding.APPLY
        yield Step(setting, value, wanted, why, fix)
    count, partitions = len(found.partitions), one.partitions
    if partitions is None or partitions == count:
        return
    declare = f"declare {counted(count, 'partition')} of {one.name}"
    why, fix = "Kafka removes no partitions", f"create another topic, or {declare}"
    if partitions > count:
        why, fix = None, finding.APPLY
        if one.keyed:
            why = "the records of a key would be in two partitions, without an order"
            fix = f"{declare}, or keyed: false if its records have no keys"
    yield Step(PARTITIONS, str(count), str(partitions), why, fix)
