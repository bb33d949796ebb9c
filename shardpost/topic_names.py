"""The topics that Shardpost knows, by their names in the contract."""

from typing import Literal

# What each is called in an installation is a setting: `topic_…` in settings/values.py.
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
