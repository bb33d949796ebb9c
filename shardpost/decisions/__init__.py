"""Decisions: what a person decided, or Shardpost on a person's behalf.

A record of the topic `decisions` is one: its key is what it is about (a letter id, a run key, a
week and client), its value {"Kind", "Who", "When", "Why"}. decisions_topic.py writes and reads
them.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from shardpost.errors import UsageError
from shardpost.instants import parse_instant

SHARDPOST = "shardpost"  # the Who of a decision that no person made


class Kind(StrEnum):
    """What was decided."""

    CONFLICT = "conflict"
    REFUSED = "refused"
    RELEASED = "released"
    REDRIVEN = "redriven"
    EDITED = "edited"
    DISCARDED = "discarded"
    RESOLVED = "resolved"
    PAUSED = "paused"
    RESUMED = "resumed"
    TESTED = "tested"
    ERASED = "erased"
    SWAPPED = "swapped"
    IMPORTED = "imported"
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"


@dataclass(frozen=True)
class Decision:
    """One record of `decisions`; `about` is its key."""

    about: bytes
    kind: Kind
    who: str
    when: datetime
    why: str

    def value(self) -> bytes:
        """Return the record's value."""
        form = {name.capitalize(): text for name, text in self.as_json().items()}
        return json.dumps(form, ensure_ascii=False).encode(errors="replace")

    def as_json(self) -> dict[str, str]:
        """Return the decision in the form of `letters show --json`."""
        when = self.when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return {"kind": str(self.kind), "who": self.who, "when": when, "why": self.why}


def decode(key: bytes | None, value: bytes | None) -> Decision | None:
    """Return the decision of a record; None for one that cannot be decoded."""
    try:
        form = json.loads(value or b"")
        who, why = str(form["Who"]), str(form["Why"])
        f"{who}{why}".encode()  # halves of surrogate pairs could not be printed
        return Decision(key or b"", Kind(form["Kind"]), who, parse_instant(form["When"]), why)
    except (ValueError, KeyError, TypeError, RecursionError, UsageError):
        return None
