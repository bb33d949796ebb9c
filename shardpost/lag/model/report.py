"""How far readers are behind: what a measurement is asked for, and what it found.

A `LagRow` is one line of `shardpost lag`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.kafka.coordinates import TopicPartition


@dataclass(frozen=True)
class Position:
    """The next offset that a group reads; None if it has committed none.

    `expires_ms` (since 1970) is when Kafka forgets that offset, as things are; None for never.
    `clear_until`: below that offset an earlier look found no record that was unread at this one.
    `was_recreated`: the topic is known to have been replaced since it was read. `is_note`: the
    number is no offset, but what a writer of Shardpost keeps in Kafka in the place of one.
    """

    group: str
    partition: TopicPartition
    committed: int | None
    expires_ms: int | None = None
    clear_until: int = 0
    was_recreated: bool = False
    is_note: bool = False


@dataclass(frozen=True)
class LagRow:
    """How far a group is behind in one partition, and when it loses data; as in `lag --json`.

    `committed` is None if it has committed nothing, `end` (the high watermark) if nobody says it;
    then the numbers after them are None as well. `seconds_to_loss` is None where nothing can be
    lost; 0 where data is lost already, or may be at any moment.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    records_behind: int | None
    seconds_behind: float | None
    seconds_to_loss: float | None
    reason: str

    def loses_within(self, seconds: float) -> bool:
        """Tell whether it has lost data, or will within so many seconds."""
        return self.seconds_to_loss is not None and self.seconds_to_loss <= seconds


def by_time_to_loss(row: LagRow) -> tuple[float, str, str, int]:
    """Return the sort key of rows: what is lost first comes first, what is never lost last."""
    never = float("inf")
    seconds = never if row.seconds_to_loss is None else row.seconds_to_loss
    return seconds, row.group, row.topic, row.partition


# {(group, partition): below that offset an earlier look found nothing that was unread}: what is
# deleted there was no record, but markers, and records that were aborted
Clear = Mapping[tuple[str, TopicPartition], int]


@dataclass(frozen=True)
class Selection:
    """Only groups and topics of these names; all where there are none."""

    groups: Collection[str] = ()
    topics: Collection[str] = ()

    def has(self, topic: str) -> bool:
        """Tell whether a topic is wanted."""
        return not self.topics or topic in self.topics


@dataclass(frozen=True)
class Lag:
    """What was found: rows, soonest loss first; and what could not be queried.

    `others` are groups that are no consumer groups, each with its kind.
    """

    rows: Sequence[LagRow]
    problems: Sequence[str] = field(default_factory=list)
    others: Sequence[str] = field(default_factory=list)

    def exit_code(self, warning: float) -> int:
        """Return NEEDS_ATTENTION if data is lost, or will be within so many seconds."""
        if any(row.loses_within(warning) for row in self.rows):
            return NEEDS_ATTENTION
        return COULD_NOT if self.problems else DONE
