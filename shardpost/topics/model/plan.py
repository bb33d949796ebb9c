"""What `topics apply` does: from declared topics and existing ones to changes and refusals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardpost.topics.model import finding
from shardpost.topics.model.cluster import Cluster, Expected, FoundTopic
from shardpost.topics.model.departures import departures, why_not_changed
from shardpost.wording import counted


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
