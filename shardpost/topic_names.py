"""The topics that Shardpost knows, by their names in the contract; and what Kafka calls a name."""

import re
from typing import Literal

LEGAL = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}")

# What each is called in an installation is a setting: `topics` in settings/values.py.
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
