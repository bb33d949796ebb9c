"""All rules of the audit; here are those of brokers, and of replicas now."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from shardpost.topics.model import cluster, topic_rules
from shardpost.topics.model.finding import Finding, Severity
from shardpost.wording import counted, some_of

OFFSETS_RETENTION = "offsets.retention.minutes"
MINUTES_PER_DAY = 24 * 60
# Kafka's default: a group that commits once a week just keeps its offsets.
LEAST_OFFSETS_MINUTES = 7 * MINUTES_PER_DAY
TIMEOUT = "transaction.max.timeout.ms"
NAMED = 8


def few_brokers(view: cluster.View) -> Iterator[Finding]:
    """Find a cluster with fewer than three brokers; reported once, not for each topic."""
    count = len(view.cluster.known_brokers)
    if view.has_few_brokers:
        replicas = min((found.replicas for _, found in view.there), default=count)
        yield Finding(
            setting="replication.factor",
            found=f"{replicas}, on {counted(count, 'broker')}",
            expected=f"{cluster.REPLICAS}, on three brokers or more",
            why="if a broker's disk is lost, so are records that no other broker has",
            fix="run three brokers, set SHARDPOST_REPLICATION_FACTOR=3 for new topics, and add"
            " replicas to those that exist: `shardpost topics apply` then names the commands",
        )


def offsets_retention(view: cluster.View) -> Iterator[Finding]:
    """Find committed offsets that expire before a paused group returns."""
    least = max(LEAST_OFFSETS_MINUTES, (view.request_days + 1) * MINUTES_PER_DAY)
    of_brokers = (config.get(OFFSETS_RETENTION) for config in view.cluster.configs.values())
    known = [(int(found.value), found.source) for found in of_brokers if found and found.value]
    low, source = min(known, default=(least, "default"))
    if low < least:
        yield Finding(
            setting=OFFSETS_RETENTION,
            found=str(low),
            source=source,
            expected=f"{least} or more",
            why="a group that pauses for longer loses its committed offsets",
            fix=f"set {OFFSETS_RETENTION}={least} on all brokers and restart them",
        )


def kafka_version(view: cluster.View) -> Iterator[Finding]:
    """Find releases of Kafka that are known to lose data."""
    for broker, release in sorted(view.cluster.releases.items()):
        if release and (loss := cluster.known_loss(release)):
            yield Finding(
                setting="version",
                found=f"Kafka {release}, on broker {broker}",
                expected=cluster.WITHOUT_LOSS,
                why=f"it {loss}",
                fix=f"use such a release: {cluster.WHICH_RELEASE}",
            )


def unknown(view: cluster.View) -> Iterator[Finding]:
    """Find what could not be queried: whether it is in order is not known."""
    for one in view.cluster.unknown:
        yield Finding(
            topic=one.topic,
            setting=one.what,
            found="unknown",
            expected="an answer",
            why=f"it is unknown whether it is in order: {one.why}",
            fix="make sure that all brokers are up, and grant this user the refused permission",
        )


class _State(NamedTuple):
    rule: str
    why: str
    severity: Severity
    is_so: Callable[[cluster.FoundTopic, cluster.Partition], bool]
    expected: str


def _least(topic: cluster.FoundTopic, one: cluster.Partition) -> int:
    """Return how many replicas have to be in sync for a write; Kafka asks for no more than all."""
    return min(int(topic.value(cluster.IN_SYNC) or 1), len(one.replicas))


STATES = (
    _State(
        rule="offline-partitions",
        severity=Severity.LOSS,
        is_so=lambda _, one: one.leader < 0,
        expected="a leader of each partition",
        why="nothing can be read or written, and records are lost if the disks of the missing"
        " brokers are lost",
    ),
    _State(
        rule="under-min-insync",
        severity=Severity.RISK,
        is_so=lambda topic, one: one.leader >= 0 and len(one.in_sync) < _least(topic, one),
        expected=f"{cluster.IN_SYNC} of them in sync",
        why="writes are refused until there are more",
    ),
    _State(
        rule="under-replicated",
        severity=Severity.RISK,
        is_so=lambda topic, one: (
            one.leader >= 0 and _least(topic, one) <= len(one.in_sync) < len(one.replicas)
        ),
        expected="all replicas in sync",
        why="with one more broker down, writes stop, or records are lost",
    ),
)


def replicas_now(view: cluster.View) -> Iterator[Finding]:
    """Find partitions without a leader, with too few replicas in sync for a write, or too few."""
    away = sorted(view.cluster.known_brokers - view.cluster.brokers)
    fix = f"start broker {', '.join(map(str, away))}" if away else "see the brokers' logs"
    for state in STATES:
        for one, found in view.there:
            all_ = enumerate(found.partitions)
            if numbers := [str(n) for n, part in all_ if state.is_so(found, part)]:
                yield Finding(
                    rule=state.rule,
                    severity=state.severity,
                    topic=one.name,
                    setting="replicas",
                    found=f"so are partitions {some_of(numbers, NAMED)} of {len(found.partitions)}",
                    expected=state.expected,
                    why=state.why,
                    fix=fix,
                )


def hanging_transaction(view: cluster.View) -> Iterator[Finding]:
    """Find transactions that are open for longer than brokers allow, and that nobody ends.

    Whose age is not known may be one of these: its first record cannot be read, or has no time, or
    one that no clock has yet.
    """
    allowed = [one[TIMEOUT].value for one in view.cluster.configs.values() if TIMEOUT in one]
    longest = max((int(value) for value in allowed if value), default=900_000)  # as of Kafka
    limit = timedelta(milliseconds=longest)
    for one in view.cluster.behind:
        since = None if one.since is None or one.since - view.now > limit else one.since
        if since is not None and view.now - since <= limit:
            continue
        age = "age unknown" if since is None else f"since {since:%Y-%m-%d %H:%M:%S} UTC"
        tool = f"kafka-transactions.sh --bootstrap-server {view.bootstrap}"
        place = f"--topic {one.topic} --partition {one.partition}"
        ends = f"{tool} abort {place} --start-offset {one.stable}"
        whose = f"{tool} describe-producers {place}"
        yield Finding(
            topic=one.topic,
            setting="last stable offset",
            found=f"partition {one.partition}: offset {one.stable}, {one.high - one.stable} "
            "before the"
            f" end, {age}",
            expected=f"a transaction that ends within {limit}",
            why="read_committed consumers read nothing after it, and nothing there is compacted;"
            " with deletion by age, records are deleted unread",
            fix=ends
            if since
            else f"check whether its producer is active: {whose}; if it is not: {ends}",
        )


Rule = Callable[[cluster.View], Iterator[Finding]]

# Of topics that exist or should: the doctor looks at these, too.
TOPIC_RULES: tuple[Rule, ...] = (
    topic_rules.missing_topic,
    topic_rules.topic_settings,
    topic_rules.letter_sizes,
    topic_rules.replication_factor,
    topic_rules.min_insync_replicas,
    replicas_now,
    topic_rules.run_topics,
    topic_rules.partitions_of_tables,
    topic_rules.scattered_keys,
)
CLUSTER_RULES: tuple[Rule, ...] = (
    few_brokers,
    offsets_retention,
    kafka_version,
    unknown,
    hanging_transaction,
)


def rule_name(rule: Rule) -> str:
    """Return the name of a rule, where its findings do not name it."""
    return rule.__name__.replace("_", "-")


def findings(
    view: cluster.View, rules: tuple[Rule, ...] = TOPIC_RULES + CLUSTER_RULES
) -> list[Finding]:
    """Return what the rules find, the worst first."""
    found = (replace(one, rule=one.rule or rule_name(rule)) for rule in rules for one in rule(view))
    return sorted(found, key=lambda one: one.severity.rank)
