"""The topics that Shardpost knows, by their names in the contract; what Kafka calls a name.

What each is called in an installation is a setting: `topics` in settings/values.py.
"""

import re
from typing import Literal

LEGAL = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}")

TopicName = Literal[
    "positions",
    "clients",
    "exchanges",
    "share-holders",
    "weekly-emails",
    "dead-letters",
    "retries",
    "parking-lot",
    "run-requests",
    "run-commands",
    "decisions",
]
INPUTS: tuple[TopicName, ...] = ("positions", "clients", "exchanges")
# A retry may go back to the topic that its record came from.
RETRY_TARGETS = frozenset({*INPUTS, "retries"})


def check_topic(text: str) -> str:
    """Check the name of a topic, as Kafka does; ValueError if it cannot be one of the user's."""
    if not LEGAL.fullmatch(text):
        raise ValueError("expected the name of a topic: up to 249 of a-z, A-Z, 0-9, '.', '_', '-'")
    if text.startswith("__"):
        raise ValueError("expected a topic of your own: Kafka's own begin with '__'")
    return text


def metrics_name(topic: object) -> str:
    """Return the topic as Kafka's metrics name it: it takes no two topics that are one there."""
    return str(topic).replace(".", "_")
