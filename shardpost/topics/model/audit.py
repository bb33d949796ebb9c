"""All rules of the audit."""

from collections.abc import Callable, Iterator

from shardpost.topics.model import cluster_rules, partition_rules, replication_rules, topic_rules
from shardpost.topics.model.finding import Finding, in_order
from shardpost.topics.model.view import View

Rule = Callable[[View], Iterator[Finding]]

# Of topics that exist or should: the doctor looks at these, too.
TOPIC_RULES: tuple[Rule, ...] = (
    topic_rules.missing_topic,
    topic_rules.topic_settings,
    topic_rules.letter_sizes,
    replication_rules.replication_factor,
    replication_rules.min_insync_replicas,
    topic_rules.declared_partitions,
    partition_rules.offline_partitions,
    partition_rules.under_min_insync,
    partition_rules.under_replicated,
    partition_rules.run_topics,
    partition_rules.partitions_of_tables,
)
CLUSTER_RULES: tuple[Rule, ...] = (
    cluster_rules.few_brokers,
    cluster_rules.internal_topics,
    cluster_rules.offsets_retention,
    cluster_rules.log_cleaner,
    cluster_rules.kafka_version,
    cluster_rules.producer_settings,
    cluster_rules.unknown,
    partition_rules.hanging_transaction,
)


def findings(view: View, rules: tuple[Rule, ...] = TOPIC_RULES + CLUSTER_RULES) -> list[Finding]:
    """Return what the rules find, the worst first."""
    return in_order(finding for rule in rules for finding in rule(view))
