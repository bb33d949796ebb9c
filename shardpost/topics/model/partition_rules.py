"""Rules about partitions: how many, how replicated at this moment, and how far they can be read."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from shardpost.kafka.partitioning import ONE_PARTITIONER
from shardpost.topics.model import finding
from shardpost.topics.model.cluster import IN_SYNC, FoundTopic, Partition, View
from shardpost.topics.model.finding import Finding, Severity
from shardpost.wording import counted

TIMEOUT = "transaction.max.timeout.ms"
TIMEOUT_MS = 900_000  # Kafka's default
NAMED = 8


def offline_partitions(view: View) -> Iterator[Finding]:
    """Find partitions without a leader: they cannot be read or written."""
    yield from _of_state(
        view,
        "offline-partitions",
        Severity.LOSS,
        lambda _, one: one.leader < 0,
        expected="a leader of each partition",
        why="nothing can be read from them or written to them, and what they hold is lost with the"
        " disks of the brokers that are away",
    )


def under_min_insync(view: View) -> Iterator[Finding]:
    """Find partitions to which nothing can be written, for want of replicas in sync."""
    yield from _of_state(
        view,
        "under-min-insync",
        Severity.RISK,
        lambda topic, one: one.leader >= 0 and len(one.in_sync) < _least(topic, one),
        expected=f"{IN_SYNC} of them in sync",
        why="writers are refused until there are more",
    )


def under_replicated(view: View) -> Iterator[Finding]:
    """Find partitions that have lost replicas, and can still be written."""
    yield from _of_state(
        view,
        "under-replicated",
        Severity.RISK,
        lambda topic, one: (
            one.leader >= 0 and _least(topic, one) <= len(one.in_sync) < len(one.replicas)
        ),
        expected="all replicas in sync",
        why="with another broker away, they cannot be written to any more, or are lost",
    )


def run_topics(view: View) -> Iterator[Finding]:
    """Find requests and commands of a run key in different numbers of partitions."""
    requests, asked = view.product("run-requests")
    issued_in, issued = view.product("run-commands")
    if not asked or not issued or len(asked.partitions) == len(issued.partitions):
        return
    yield Finding(
        rule="run-topics",
        topic=issued_in,
        setting="partitions",
        found=str(len(issued.partitions)),
        source="topic",
        expected=f"{len(asked.partitions)}, as {requests} has",
        why="no run is started on request",
        fix="let all runs end, then delete both topics and run `shardpost topics apply`",
    )


def partitions_of_tables(view: View) -> Iterator[Finding]:
    """Find topics that have another number of partitions than the tables were built with."""
    if view.built is None:
        return
    read = {**view.built.partitions, view.built.holders: view.built.shards}
    for topic, expected in read.items():
        found = view.cluster.topics.get(topic)
        count = len(found.partitions) if found else expected
        if count == expected:
            continue
        severity, why, fix = _of_count(topic, count, expected, topic == view.built.holders)
        yield Finding(
            rule="partitions-of-tables",
            severity=severity,
            topic=topic,
            setting="partitions",
            found=str(count),
            source="topic",
            expected=f"{expected}, as at snapshot {view.built.snapshot}",
            why=why,
            fix=fix,
        )


def scattered_keys(view: View) -> Iterator[Finding]:
    """Find inputs of which keys have records in several partitions that growth does not explain."""
    for topic, found in sorted(view.built.scattered.items()) if view.built else ():
        yield Finding(
            rule="scattered-keys",
            topic=topic,
            setting="partition of a key",
            found=f"several, of {found}",
            expected="one, the same for all producers",
            why="Kafka orders and compacts records within a partition only: of what a compaction"
            " reads together, timestamps decide, and what a tombstone closed stays in the other",
            fix=ONE_PARTITIONER,
        )


def hanging_transaction(view: View) -> Iterator[Finding]:
    """Find a transaction that is open for longer than brokers let one be: nobody ends it.

    Whose age is not known may be one of these: its first record cannot be read, or has no time, or
    one that no clock has yet.
    """
    limit = timedelta(milliseconds=_longest_transaction(view))
    for one in view.cluster.behind:
        since = None if one.since is None or one.since - view.now > limit else one.since
        if since is not None and view.now - since <= limit:
            continue
        age = "age unknown" if since is None else f"since {since:%Y-%m-%d %H:%M:%S} UTC"
        ends = finding.abort(view.bootstrap, one.topic, one.partition, one.stable)
        whose = finding.producers(view.bootstrap, one.topic, one.partition)
        yield Finding(
            rule="hanging-transaction",
            topic=one.topic,
            setting="last stable offset",
            found=f"partition {one.partition}: {one.stable}, {one.high - one.stable} before the"
            f" end, {age}",
            expected=f"a transaction that ends within {limit}",
            why="who reads committed records reads nothing after it, and nothing there is"
            " compacted; where Kafka deletes by age, it is deleted unread",
            fix=ends if since else f"see whether its producer is at work: {whose}; else: {ends}",
        )


def _of_state(
    view: View,
    rule: str,
    severity: Severity,
    is_so: Callable[[FoundTopic, Partition], bool],
    *,
    expected: str,
    why: str,
) -> Iterator[Finding]:
    for one, found in view.there:
        numbers = [n for n, part in enumerate(found.partitions) if is_so(found, part)]
        if numbers:
            away = sorted(view.cluster.known_brokers - view.cluster.brokers)
            brokers = f"broker {', '.join(map(str, away))}" if away else "the brokers' logs"
            yield Finding(
                rule=rule,
                severity=severity,
                topic=one.name,
                setting="replicas",
                found=f"so are partitions {_named(numbers)} of {len(found.partitions)}",
                expected=expected,
                why=why,
                fix=f"start {brokers}" if away else f"see {brokers}",
            )


def _of_count(topic: str, count: int, expected: int, is_holders: bool) -> tuple[Severity, str, str]:
    if is_holders:
        why = "no compaction runs: clients would be in other shards"
        declare = f"declare {counted(expected, 'partition')} of it"
        recreate = f"delete {topic}, {declare}, `shardpost topics apply`"
        return Severity.RISK, why, recreate
    if count < expected:
        why = "the topic was recreated, and records are gone"
        return Severity.LOSS, why, "shardpost compact --reconcile"
    why = "the records of a key are in two partitions; the next compaction reads both"
    return Severity.DRIFT, why, "shardpost compact"


def _named(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED]))
    return f"{shown} and {len(numbers) - NAMED} more" if len(numbers) > NAMED else shown


def _least(topic: FoundTopic, one: Partition) -> int:
    """Return how many replicas have to be in sync for a write; Kafka asks for no more than all."""
    return min(int(topic.value(IN_SYNC) or 1), len(one.replicas))


def _longest_transaction(view: View) -> int:
    found = [one[TIMEOUT].value for one in view.cluster.configs.values() if TIMEOUT in one]
    return max((int(value) for value in found if value), default=TIMEOUT_MS)
