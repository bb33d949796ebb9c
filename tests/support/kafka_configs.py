"""Changing settings of the real broker, or of one of its topics, while tests run."""

from collections.abc import Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from shardpost.kafka.clients import admin
from shardpost.settings import Settings


def configure_topic(settings: Settings, topic: str, values: Mapping[str, str]) -> None:
    _configure(settings, ResourceType.TOPIC, topic, values)


def configure_broker(settings: Settings, values: Mapping[str, str]) -> None:
    _configure(settings, ResourceType.BROKER, "1", values)


def _configure(
    settings: Settings, kind: ResourceType, name: str, values: Mapping[str, str]
) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    client = admin(settings)  # it has to outlive what it does
    wanted = ConfigResource(kind, name, incremental_configs=entries)
    for done in client.incremental_alter_configs([wanted]).values():
        done.result(30)
