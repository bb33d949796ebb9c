"""Changing settings of the real broker, or of one of its topics, while tests run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from shardpost.kafka.clients import admin
from shardpost.settings import Settings

# Of a topic whose records the cleaner soon takes.
SOON_CLEANED = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}


def configure_topic(settings: Settings, topic: str, values: Mapping[str, str]) -> None:
    _configure(settings, ResourceType.TOPIC, topic, values)


def configure_broker(settings: Settings, values: Mapping[str, str]) -> None:
    _configure(settings, ResourceType.BROKER, "1", values)


@contextmanager
def busy_cleaner(settings: Settings) -> Iterator[None]:
    """Have the broker's cleaner look for work ten times a second, not every 15 seconds."""
    configure_broker(settings, {"log.cleaner.backoff.ms": "100"})
    yield
    configure_broker(settings, {"log.cleaner.backoff.ms": "15000"})


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
