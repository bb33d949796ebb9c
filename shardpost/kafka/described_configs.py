"""Effective settings of topics and brokers with where each comes from, as far as Kafka says them.

What one resource refuses is its own affair: the others are described all the same.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from shardpost.kafka.clients import admin
from shardpost.kafka.offsets import LEADER_RETRY_SECONDS, TRANSIENT_LEADER_ERRORS
from shardpost.settings import Settings

PATIENCE_SECONDS = 10.0
AT_ONCE = 500


class Described(NamedTuple):
    """{setting: (value, source)}; or None, and why."""

    entries: Mapping[str, tuple[str | None, Literal["topic", "broker", "default"]]] | None
    why: str = ""


def topics_described(settings: Settings, topics: Iterable[str]) -> dict[str, Described]:
    """Return the settings of topics that exist."""
    return _described(settings, ResourceType.TOPIC, list(topics))


def brokers_described(settings: Settings, brokers: Iterable[int]) -> dict[int, Described]:
    """Return the settings of brokers, each asked itself."""
    found = _described(settings, ResourceType.BROKER, [str(one) for one in brokers])
    return {int(broker): described for broker, described in found.items()}


def _described(settings: Settings, kind: ResourceType, names: list[str]) -> dict[str, Described]:
    client = admin(settings)  # it has to outlive what it asks for
    at_once = AT_ONCE if kind is ResourceType.TOPIC else 1  # each broker says its own
    deadline = time.monotonic() + min(PATIENCE_SECONDS, settings.kafka_timeout)
    found: dict[str, Described] = {}
    left = names
    while left:
        failed = list[str]()
        for start in range(0, len(left), at_once):
            asked = [ConfigResource(kind, name) for name in left[start : start + at_once]]
            futures = client.describe_configs(asked, request_timeout=settings.kafka_timeout)
            for resource, future in futures.items():
                try:
                    found[resource.name] = Described(_entries(future.result()))
                except KafkaException as error:
                    found[resource.name] = Described(None, error.args[0].str())
                    if error.args[0].code() in TRANSIENT_LEADER_ERRORS:
                        failed.append(resource.name)
        left = failed
        if time.monotonic() > deadline:
            break
        time.sleep(LEADER_RETRY_SECONDS if left else 0)
    return found


def _entries(
    entries: Mapping[str, ConfigEntry],
) -> dict[str, tuple[str | None, Literal["topic", "broker", "default"]]]:
    return {name: (entry.value, _source(entry.source)) for name, entry in entries.items()}


def _source(source: ConfigSource) -> Literal["topic", "broker", "default"]:
    found = ConfigSource(source)  # a client gives numbers
    if found is ConfigSource.DYNAMIC_TOPIC_CONFIG:
        return "topic"
    return "default" if found is ConfigSource.DEFAULT_CONFIG else "broker"
