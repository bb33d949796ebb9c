"""Clusters as plain values, for rules and plans."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shardpost.topics.model.cluster import Cluster, Expected, FoundTopic, Partition, Setting, View
from shardpost.topics.model.plan import TopicPlan

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
BROKERS = frozenset({1, 2, 3})
BOOTSTRAP = "kafka:9092"
SAFE = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}


def topic(
    config: Mapping[str, str] = SAFE, partitions: int = 2, replicas: tuple[int, ...] = (1, 2, 3)
) -> FoundTopic:
    """Return a topic whose replicas are all in sync."""
    one = Partition(replicas[0], replicas, replicas)
    settings = {name: Setting(value, "topic") for name, value in config.items()}
    return FoundTopic((one,) * partitions, settings)


def cluster(*names: str, **topics: FoundTopic) -> Cluster:
    """Return a cluster of three brokers with these topics; those that are only named are right."""
    return Cluster("c", BROKERS, {**dict.fromkeys(names, topic()), **topics})


def view(found: Cluster, *expected: Expected, **more: Any) -> View:
    """Return what the rules look at."""
    return View(found, expected, BOOTSTRAP, NOW, **more)


def changed(found: FoundTopic, plan: TopicPlan) -> FoundTopic:
    """Return a topic after what a plan changes of it."""
    config = {**(found.config or {})}
    config |= {name: Setting(value, "topic") for name, value in plan.configs.items()}
    missing = plan.partitions - len(found.partitions)
    return replace(
        found, config=config, partitions=found.partitions + found.partitions[:1] * missing
    )
