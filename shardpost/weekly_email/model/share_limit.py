"""How many clients of a week may be in a state before a person has to look."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardpost.weekly_email.model.causes import Cause, causes_text
from shardpost.weekly_email.model.shard_counts import STATES


@dataclass(frozen=True)
class ShareLimit:
    """More clients than both are too many: a number, and a share of all."""

    allowed: int
    share: float

    def is_exceeded(self, count: int, clients: int) -> bool:
        """Tell whether so many of all clients are too many."""
        return count > max(self.allowed, self.share * clients)


def totals(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return {state: clients} of all shards, whose counts are as in `counts_document`."""
    found = list(shards)
    return {state: sum(shard[state] for shard in found) for state in STATES}


def why(causes: Iterable[Cause], count: int) -> str:
    """Return the largest causes of `count` clients as the end of a clause; empty without any."""
    text = causes_text(causes, count)
    return f": {text}" if text else ""
