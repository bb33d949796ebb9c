"""Creates missing declared topics, with their first records, and repairs what is safe to repair."""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from shardpost.errors import ShardpostError, combined
from shardpost.installation import Installation
from shardpost.kafka import topic_administration
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.kafka.topic_metadata import partition_leaders
from shardpost.kafka.transactions import Transactions, anyone
from shardpost.topics.declared import DECLARED, TopicSpec
from shardpost.topics.model.plan import TopicPlan, plan_changes
from shardpost.topics.observation import observe_topics, require_cluster
from shardpost.topics.topics_file import expected_topics
from shardpost.waiting import attempts
from shardpost.wording import counted

RETRY_SECONDS = 1.0


def write_starter_records(kafka: Kafka, spec: TopicSpec, partitions: int) -> int:
    """Write its starter records to a topic without any record, in one transaction.

    Returns how many were written. A process that is killed leaves no committed record, so the next
    call writes all of them. Of two at the same time the later fences the earlier, which then finds
    the records of the other.
    """
    topic = kafka.topic(spec.name)
    deadline = time.monotonic() + kafka.timeout
    while not _has_records(kafka, topic, partitions):
        try:
            return _write(kafka, spec, topic, partitions)
        except ShardpostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
    return 0


def _write(kafka: Kafka, spec: TopicSpec, topic: str, partitions: int) -> int:
    transactions = Transactions(
        kafka,
        f"starter/{topic}",
        may_write=anyone,  # before there is an owner
        fenced=f"fenced: another process writes the initial records of {topic}",
        failed=f"topic {topic}: cannot write its initial records ({{reason}})",
    )
    records = [
        Outgoing(topic, key.encode(), json.dumps(value).encode(), [])
        for key, value in spec.starter.items()
    ]
    with closing(transactions):
        transactions.open()
        if _has_records(kafka, topic, partitions):
            return 0
        transactions.write(records)
    return len(records)


def _has_records(kafka: Kafka, topic: str, partitions: int) -> bool:
    ends = watermarks(kafka, {topic: partitions}, committed=True)[topic]
    return any(
        next(read_to_end(kafka, TopicPartition(topic, partition)), None) is not None
        for partition, (low, end) in ends.items()
        if end > low
    )


POLL_SECONDS = 0.1


@dataclass(frozen=True)
class AppliedTopic:
    """What was done for one topic, or would be if it is a dry run.

    `created`: by this very call; `starter`: how many starter records were written.
    """

    plan: TopicPlan
    created: bool
    starter: int
    is_dry_run: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the form of `topics apply --json`."""
        return {
            "topic": self.plan.topic,
            "partitions": self.plan.partitions,
            "created": self.created,
            "starter": self.starter,
            "changed": [
                {"setting": one.setting, "found": one.found, "to": one.expected}
                for one in self.plan.changes
            ],
            "refused": [vars(one) for one in self.plan.refusals],
        }

    def as_text(self) -> str:
        """Return the same as text: a line, and one for each change and refusal."""
        done, would = "exists", "would be " if self.is_dry_run else ""
        if self.created:
            done = f"{would}created with {counted(self.plan.partitions, 'partition')}"
        starter = f", {counted(self.starter, 'initial record')} written" if self.starter else ""
        verb = "would change" if self.is_dry_run else "changed"
        changes = [f"  {verb}: {one}" for one in self.plan.changes]
        refusals = [f"  {one}" for one in self.plan.refusals]
        return "\n".join([f"topic {self.plan.topic}: {done}{starter}", *changes, *refusals])


def apply_topics(installation: Installation, *, dry_run: bool = False) -> list[AppliedTopic]:
    """Create what is missing, repair what is safe, and give starter records to a topic without any.

    May run twice at the same time. ShardpostError says all that could not be done.
    """
    plans = plan_topics(installation)
    if dry_run:
        return [AppliedTopic(one, one.create, 0, is_dry_run=True) for one in plans]
    return _carried_out(installation, plans)


def create_topics(installation: Installation) -> list[AppliedTopic]:
    """Create missing topics as `apply_topics` does; leave existing ones unchanged."""
    plans = [replace(one, steps=()) for one in plan_topics(installation)]
    return _carried_out(installation, plans)


def _carried_out(installation: Installation, plans: Sequence[TopicPlan]) -> list[AppliedTopic]:
    kafka = installation.kafka
    new = [
        NewTopic(
            one.topic,
            num_partitions=one.partitions,
            replication_factor=one.expected.replicas,
            config=dict(one.expected.config),
        )
        for one in plans
        if one.create
    ]
    created, failed = topic_administration.create_topics(kafka, new)
    failed += topic_administration.alter_configs(kafka, {one.topic: one.configs for one in plans})
    growing = {one.topic: one.partitions for one in plans if one.adds_partitions}
    failed += topic_administration.add_partitions(kafka, growing)
    if failed:
        raise combined(failed)
    counts = _await_leaders(kafka, [one.topic for one in plans])
    if any(one.changes for one in plans):
        _await_changes(installation)
    gives = installation.settings.inputs is None  # else records may look otherwise
    return [_applied(kafka, one, counts[one.topic], created, gives=gives) for one in plans]


def plan_topics(installation: Installation) -> list[TopicPlan]:
    """Return the plan for each declared topic; ShardpostError for another cluster."""
    expected, file = expected_topics(installation)
    names = {name for one in expected for name in (one.name, *one.partitions_as)}
    cluster = observe_topics(installation.kafka, names)
    require_cluster(installation.kafka, file, cluster)
    bootstrap, partitions = installation.kafka.bootstrap, installation.settings.partitions
    return plan_changes(expected, cluster, bootstrap=bootstrap, partitions=partitions)


def _applied(
    kafka: Kafka, one: TopicPlan, count: int, created: set[str], *, gives: bool
) -> AppliedTopic:
    spec = next((spec for spec in DECLARED if spec.name == one.expected.product), None)
    starter = write_starter_records(kafka, spec, count) if gives and spec and spec.starter else 0
    return AppliedTopic(replace(one, partitions=count), one.topic in created, starter)


def _await_changes(installation: Installation) -> None:
    for _ in attempts(installation.kafka.timeout, POLL_SECONDS):
        left = [one for one in plan_topics(installation) if one.changes]
        if not left:
            return
    said = "; ".join(f"{one.topic}: {', '.join(map(str, one.changes))}" for one in left)
    raise ShardpostError(
        f"Kafka at {installation.kafka.bootstrap} accepted the changes but does not show"
        f" them after {installation.kafka.timeout:g} s: {said}"
    )


def _await_leaders(kafka: Kafka, names: Sequence[str]) -> dict[str, int]:
    """Return {topic: its partitions} once the leader of every partition answers.

    A new partition's leader is in the metadata a moment before it answers requests.
    """
    for _ in attempts(kafka.timeout, POLL_SECONDS):
        leaders = partition_leaders(kafka, names)
        late = [name for name in names if not all((leaders.get(name) or {0: False}).values())]
        if not late:
            counts = {name: len(leaders[name]) for name in names}
            watermarks(kafka, counts, committed=True)
            return counts
    raise ShardpostError(
        f"no leader for every partition of {', '.join(late)} at {kafka.bootstrap}"
        f" after {kafka.timeout:g} s: see the broker's log; a topic that Kafka"
        " does not show to this user requires the ACL operation Describe"
    )
