"""How many clients of a week may be in a state before a person has to look."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardpost.weekly_email.model.shard_counts import COLUMNS

STATES = tuple(name for name in COLUMNS if name != "shard")


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
