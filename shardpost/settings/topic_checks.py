"""Checks that a topic is not named by two settings."""

from collections.abc import Mapping
from typing import get_args

from pydantic import ValidationInfo

from shardpost.settings.prefixes import PREFIX
from shardpost.topic_names import TopicName


def topic_field(name: TopicName) -> str:
    """Return the field of the settings that names a topic."""
    return "topic_" + name.replace("-", "_")


TOPIC_FIELDS = frozenset(topic_field(name) for name in get_args(TopicName))
# A retry may go back to the topic that its record came from.
RETRY_TARGETS = frozenset({"topic_positions", "topic_clients", "topic_exchanges", "topic_retries"})


def topics_before(field: ValidationInfo, *, but: frozenset[str] = frozenset()) -> dict[str, object]:
    """Return {field: topic} of our own topics that were validated before that field."""
    return {name: field.data[name] for name in TOPIC_FIELDS - but if name in field.data}


def require_other_topic(topic: object, topics: Mapping[str, object]) -> None:
    """Raise ValueError if another setting names the same topic."""
    for field, name in topics.items():
        if _as_metrics(topic) == _as_metrics(name):
            raise ValueError(
                f"expected another topic, found that of {PREFIX}{field.upper()}: {name}"
            )


def _as_metrics(topic: object) -> str:
    """Return the topic as Kafka's metrics name it: it takes no two topics that are one there."""
    return str(topic).replace(".", "_")
