"""What `topics apply` does: from declared topics and existing ones to changes and refusals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardpost.topics.model import finding
from shardpost.topics.model.cluster import Cluster, Expected, FoundTopic
from shardpost.topics.model.setting_rules import departures, why_not_changed
from shardpost.wording import counted


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
            if why := why_not_changed(setting, one, found):
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
