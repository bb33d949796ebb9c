"""Changing settings of the real broker, or of one of its topics, while tests run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.job_process import wait_for

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
    resource = ConfigResource(kind, name)
    wanted = ConfigResource(kind, name, incremental_configs=entries)

    def set_values() -> None:
        [done] = installed(settings).kafka.admin().incremental_alter_configs([wanted]).values()
        done.result(30)

    def is_shown() -> bool:
        [described] = installed(settings).kafka.admin().describe_configs([resource]).values()
        found = described.result(30)
        return all(found[key].value == value for key, value in values.items())

    installed(settings).kafka.with_leaders(set_values)  # a broker may come or go meanwhile
    wait_for(lambda: installed(settings).kafka.with_leaders(is_shown), f"the settings of {name}")


def wait_until_shown(settings: Settings, topic: str, partitions: int) -> None:
    """Wait until the broker, to which the controller has given them, shows a topic's partitions."""

    def is_shown() -> bool:
        shown = installed(settings).kafka.metadata().topics
        return topic in shown and len(shown[topic].partitions) == partitions

    wait_for(is_shown, f"topic {topic} with {partitions} partitions")
