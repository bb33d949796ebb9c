"""A closed week: its records have left the ledger, and nobody is ever mailed of it again.

The ledger itself says so, in a record of each of its partitions. Its key is the week alone, which
is no client's; Kafka keeps it for as long as the topic is there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shardpost.errors import ShardpostError
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.report import ShardCounts

STATES = (
    DeliveryState.SENT,
    DeliveryState.FAILED,
    DeliveryState.UNKNOWN,
    DeliveryState.SUPPRESSED,
)
Counts = Mapping[DeliveryState, int]


class WeekClosedError(ShardpostError):
    """The week is closed: nobody is mailed."""


def closed_key(week: object) -> bytes:
    """Return the key of the record that closes a week."""
    return str(week).encode()


def closed_value(counts: Counts, at: datetime) -> bytes:
    """Return its value: when, and how many clients of the shard were in which state."""
    found = {str(state): counts.get(state, 0) for state in STATES}
    return json.dumps({"State": "closed", "At": at.isoformat(), "Counts": found}).encode()


def closed_counts(value: bytes | None) -> dict[DeliveryState, int]:
    """Return the counts of such a value; zeros of one that cannot be read, which closes as well."""
    try:
        found = json.loads(value or b"")["Counts"]
        return {state: int(found[state]) for state in STATES}
    except (ValueError, KeyError, TypeError, RecursionError):
        return dict.fromkeys(STATES, 0)


@dataclass(frozen=True)
class ClosedWeek:
    """One row of `closed_weeks`: how many clients were in which state, by partition.

    `emptied_at` is when the last of its records left the ledger; None before that.
    """

    week: str
    closed_at: datetime
    sent: tuple[int, ...]
    failed: tuple[int, ...]
    unknown: tuple[int, ...]
    suppressed: tuple[int, ...]
    emptied_at: datetime | None = None

    @property
    def in_words(self) -> str:
        """What is said of the week wherever somebody asks."""
        return (
            f"{self.week} was closed on {self.closed_at:%Y-%m-%d} (SHARDPOST_LEDGER_DAYS): who got"
            " its e-mail is not kept any more, and nobody is ever mailed of that week again"
        )

    @property
    def shards(self) -> list[ShardCounts]:
        """The counts by shard; who was unknown is not kept."""
        columns = {str(state): getattr(self, str(state)) for state in STATES}
        return [
            ShardCounts(shard, **{name: counts[shard] for name, counts in columns.items()})
            for shard in range(len(self.sent))
        ]


def closed_week(week: object, at: datetime, shards: list[dict[DeliveryState, int]]) -> ClosedWeek:
    """Return the row of a week by the counts of its shards."""
    sent, failed, unknown, suppressed = (
        tuple(counts[state] for counts in shards) for state in STATES
    )
    return ClosedWeek(str(week), at, sent, failed, unknown, suppressed)
