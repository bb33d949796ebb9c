"""The commands that mend what Shardpost leaves to a person, in Kafka's own tools."""

import json

from shardpost.topics.model.found import FoundTopic

APPLY = "shardpost topics apply"


def set_on_topic(bootstrap: str, topic: str, setting: str, value: str) -> str:
    """Return the command that sets a topic's setting; a list stands in brackets there."""
    given = f"[{value}]" if "," in value else value
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {setting}={given}"
    )


def add_partitions(bootstrap: str, topic: str, count: int) -> str:
    """Return the command that adds partitions."""
    return (
        f"kafka-topics.sh --bootstrap-server {bootstrap} --alter --topic {topic}"
        f" --partitions {count}"
    )


def reassign(
    bootstrap: str, topic: str, found: FoundTopic, brokers: frozenset[int], replicas: int
) -> str:
    """Return the command that gives a topic so many replicas: those it has, and others in turn."""
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute"
        f" --reassignment-json-file <(echo '{_reassignment(topic, found, brokers, replicas)}')"
    )


def abort(bootstrap: str, topic: str, partition: int, offset: int) -> str:
    """Return the command that ends a transaction that nobody ends."""
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {topic}"
        f" --partition {partition} --start-offset {offset}"
    )


def _reassignment(topic: str, found: FoundTopic, brokers: frozenset[int], replicas: int) -> str:
    ordered = sorted(brokers)
    partitions = []
    for number, partition in enumerate(found.partitions):
        start = number % len(ordered) if ordered else 0
        others = [one for one in ordered[start:] + ordered[:start] if one not in partition.replicas]
        wanted = [*partition.replicas, *others][: max(replicas, len(partition.replicas))]
        partitions.append({"topic": topic, "partition": number, "replicas": wanted})
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
