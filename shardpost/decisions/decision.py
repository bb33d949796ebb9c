"""Decisions: what a person decided, or Shardpost on a person's behalf, as the topic keeps it.

The topic `decisions` holds them: the key is what it is about (a letter id, a run key, a week and
client), the value {"Kind", "Who", "When", "Why"}.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

SHARDPOST = "shardpost"  # who decided, where no person did


class Kind(StrEnum):
    """What was decided."""

    CONFLICT = "conflict"
    REFUSED = "refused"
    RELEASED = "released"
    REDRIVEN = "redriven"
    EDITED = "edited"
    DISCARDED = "discarded"
    RESOLVED = "resolved"


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
        form = {name.capitalize(): said for name, said in self.as_json().items()}
        return json.dumps(form, ensure_ascii=False).encode(errors="replace")

    def as_json(self) -> dict[str, str]:
        """Return the decision in the form of `letters show --json`."""
        when = self.when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return {"kind": str(self.kind), "who": self.who, "when": when, "why": self.why}


def decode(key: bytes | None, value: bytes | None) -> Decision | None:
    """Return the decision of a record; None for one that cannot be read."""
    try:
        form = json.loads(value or b"")
        when = datetime.fromisoformat(form["When"])
        return Decision(key or b"", Kind(form["Kind"]), str(form["Who"]), when, str(form["Why"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
