"""How many clients of a shard are in which state of a week's e-mail."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.refusals import Refusal


@dataclass(frozen=True)
class ShardCounts:
    """The clients of one shard by state.

    `sent` to `suppressed` are the ledger's; `open` are those of the audience that it does not know.
    """

    shard: int
    sent: int = 0
    failed: int = 0
    unknown: int = 0
    suppressed: int = 0
    open: int = 0
    unknown_clients: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        """How many clients the shard has in all states."""
        return sum(getattr(self, name) for name in STATES)

    @classmethod
    def of(
        cls,
        shard: int,
        states: Mapping[DeliveryState, int],
        open_clients: int,
        unknown_clients: Iterable[str],
    ) -> "ShardCounts":
        """Return the counts of a shard; clients that are being sent are none of them."""
        counts = {str(state): states[state] for state in DeliveryState if str(state) in COLUMNS}
        unknown = tuple(sorted(unknown_clients))
        return cls(shard, **counts, open=open_clients, unknown_clients=unknown)


# What is printed of each shard, in this order.
COLUMNS = tuple(one.name for one in fields(ShardCounts) if one.name != "unknown_clients")
STATES = COLUMNS[1:]


@dataclass(frozen=True)
class ShardReport(ShardCounts):
    """The counts of a shard when its run ended; `error` is what stopped it, or None.

    `accepted` and `refused` count the mails of this run; `provisional` are refusals that the
    answers of all shards decide about (model/refusals.py), as JSON.
    """

    error: str | None = None
    accepted: int = field(default=0, compare=False)
    refused: int = field(default=0, compare=False)
    provisional: tuple[str, ...] = field(default=(), compare=False)

    def with_failed(self, refusals: Sequence[Refusal]) -> "ShardReport":
        """Return the counts after refusals were decided to be final."""
        before = Counter(one.before for one in refusals)
        names = {one.entry.client for one in refusals if one.before is DeliveryState.UNKNOWN}
        unknown = tuple(client for client in self.unknown_clients if client not in names)
        return replace(
            self,
            failed=self.failed + len(refusals),
            open=self.open - before[None],
            unknown=self.unknown - before[DeliveryState.UNKNOWN],
            suppressed=self.suppressed - before[DeliveryState.SUPPRESSED],
            unknown_clients=unknown,
            provisional=(),
        )


def counts_document(week: IsoWeek, shards: Iterable[ShardCounts]) -> dict[str, Any]:
    """Return the counts of a week in the contract's form: per shard, and who is unknown."""
    found = list(shards)
    return {
        "week": str(week),
        "shards": [{name: getattr(shard, name) for name in COLUMNS} for shard in found],
        "unknown": sorted(client for shard in found for client in shard.unknown_clients),
    }
