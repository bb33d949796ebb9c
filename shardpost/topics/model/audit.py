"""All rules of the audit; here are those about brokers, Kafka's own topics, and our clients."""

from collections.abc import Callable, Iterator

from shardpost.topics.model import partition_rules, topic_rules
from shardpost.topics.model.cluster import (
    INTERNAL,
    REPLICAS,
    WHICH_RELEASE,
    WITHOUT_LOSS,
    Setting,
    View,
    known_loss,
)
from shardpost.topics.model.finding import Finding, Severity, in_order
from shardpost.wording import counted

OFFSETS_RETENTION = "offsets.retention.minutes"
CLEANER = "log.cleaner.enable"
MINUTES_PER_DAY = 24 * 60
# Kafka's default: a group that commits once a week just keeps its offsets.
LEAST_OFFSETS_MINUTES = 7 * MINUTES_PER_DAY
# A failed broker is replaced as leader within some ten seconds.
LEAST_DELIVERY_MS = 30_000
_DELIVERY = ("delivery.timeout.ms", "message.timeout.ms")
# With what Kafka creates its own topics: {setting: (topic, least)}.
_CREATED_WITH = {
    "offsets.topic.replication.factor": (INTERNAL[0].name, 3),
    "transaction.state.log.replication.factor": (INTERNAL[1].name, 3),
    "transaction.state.log.min.isr": (INTERNAL[1].name, 2),
}


def few_brokers(view: View) -> Iterator[Finding]:
    """Find fewer than three brokers: said once, and not of each topic."""
    count = len(view.cluster.known_brokers)
    if view.has_few_brokers:
        replicas = min((found.replicas for _, found in view.there), default=count)
        yield Finding(
            rule="few-brokers",
            setting="replication.factor",
            found=f"{replicas}, on {counted(count, 'broker')}",
            expected=f"{REPLICAS}, on three brokers or more",
            why="if a broker's disk is lost, so are records that no other broker has",
            fix="run three brokers, set SHARDPOST_REPLICATION_FACTOR=3 for new topics, and add"
            " replicas to those that exist: `shardpost topics apply` then names the commands",
        )


def internal_topics(view: View) -> Iterator[Finding]:
    """Find with how few replicas Kafka would create its own topics, while there are none."""
    for setting, (topic, least) in _CREATED_WITH.items():
        low = _lowest(view, setting)
        if view.has_few_brokers or topic in view.cluster.topics or low is None:
            continue
        if _number(low) < least:
            yield Finding(
                rule="internal-topics",
                topic=topic,
                setting=setting,
                found=str(low.value),
                source=low.source,
                expected=str(least),
                why="Kafka creates the topic so: if a broker is lost, so are committed offsets and"
                " transaction states",
                fix=f"set {setting}={least} on all brokers and restart them",
            )


def offsets_retention(view: View) -> Iterator[Finding]:
    """Find offsets of groups that expire before a group that pauses comes back."""
    least = max(LEAST_OFFSETS_MINUTES, (view.request_days + 1) * MINUTES_PER_DAY)
    low = _lowest(view, OFFSETS_RETENTION)
    if low and _number(low) < least:
        yield Finding(
            rule="offsets-retention",
            setting=OFFSETS_RETENTION,
            found=str(low.value),
            source=low.source,
            expected=f"{least} or more",
            why="a group that pauses for longer forgets what it has read",
            fix=f"set {OFFSETS_RETENTION}={least} on all brokers and restart them",
        )


def log_cleaner(view: View) -> Iterator[Finding]:
    """Find brokers that compact nothing."""
    for broker, config in sorted(view.cluster.configs.items()):
        found = config.get(CLEANER)
        if found and found.value == "false":
            yield Finding(
                rule="log-cleaner",
                setting=CLEANER,
                found=f"false, on broker {broker}",
                source=found.source,
                expected="true",
                why="compacted topics, Kafka's own too, grow until the disk is full",
                fix=f"set {CLEANER}=true on broker {broker} and restart it",
            )


def kafka_version(view: View) -> Iterator[Finding]:
    """Find releases of which a loss is known."""
    for broker, release in sorted(view.cluster.releases.items()):
        loss = known_loss(release) if release else None
        if loss:
            yield Finding(
                rule="kafka-version",
                setting="version",
                found=f"Kafka {release}, on broker {broker}",
                expected=WITHOUT_LOSS,
                why=f"it {loss}",
                fix=f"run such a release: {WHICH_RELEASE}",
            )


def producer_settings(view: View) -> Iterator[Finding]:
    """Find client settings with which writes fail; those that lose records are refused before."""
    for name in _DELIVERY:
        value = view.client.get(name, "")
        if value.isdigit() and 0 < int(value) < LEAST_DELIVERY_MS:
            variable = f"SHARDPOST_KAFKA__{name.upper().replace('.', '_')}"
            yield Finding(
                rule="producer-settings",
                severity=Severity.DRIFT,
                setting=variable,
                found=value,
                source="shardpost",
                expected=f"{LEAST_DELIVERY_MS} or more",
                why="a run fails while another broker takes over as leader; nothing is lost",
                fix=f"unset {variable}",
            )


def unknown(view: View) -> Iterator[Finding]:
    """Find what could not be asked: whether it is in order is not known."""
    for one in view.cluster.unknown:
        yield Finding(
            rule="unknown",
            topic=one.topic,
            setting=one.what,
            found="unknown",
            expected="an answer",
            why=f"whether it is in order is not known: {one.why}",
            fix="see that all brokers are up, and allow what was refused to this user",
        )


def _lowest(view: View, setting: str) -> Setting | None:
    """Return the setting of the broker that has it lowest."""
    found = [one[setting] for one in view.cluster.configs.values() if setting in one]
    return min((one for one in found if one.value), key=_number, default=None)


def _number(found: Setting) -> int:
    return int(found.value or 0)


Rule = Callable[[View], Iterator[Finding]]

# Of topics that exist or should: the doctor looks at these, too.
TOPIC_RULES: tuple[Rule, ...] = (
    topic_rules.missing_topic,
    topic_rules.topic_settings,
    topic_rules.letter_sizes,
    topic_rules.replication_factor,
    topic_rules.min_insync_replicas,
    topic_rules.declared_partitions,
    partition_rules.offline_partitions,
    partition_rules.under_min_insync,
    partition_rules.under_replicated,
    partition_rules.run_topics,
    partition_rules.partitions_of_tables,
    partition_rules.scattered_keys,
)
CLUSTER_RULES: tuple[Rule, ...] = (
    few_brokers,
    internal_topics,
    offsets_retention,
    log_cleaner,
    kafka_version,
    producer_settings,
    unknown,
    partition_rules.hanging_transaction,
)


def findings(view: View, rules: tuple[Rule, ...] = TOPIC_RULES + CLUSTER_RULES) -> list[Finding]:
    """Return what the rules find, the worst first."""
    return in_order(finding for rule in rules for finding in rule(view))
