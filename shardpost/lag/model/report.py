"""What a measurement is asked for, and what it found."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.kafka.coordinates import TopicPartition
from shardpost.lag.model.row import LagRow

# {(group, partition): below that offset an earlier look found nothing that was unread}
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
    """What was found: rows, what is lost first first; and what could not be asked for.

    `left_out` are groups that commit no offsets as consumer groups do.
    """

    rows: Sequence[LagRow]
    problems: Sequence[str] = field(default_factory=list)
    left_out: Sequence[str] = field(default_factory=list)

    def clear(self) -> dict[tuple[str, TopicPartition], int]:
        """Return up to which offsets nothing was unread, for a later measurement.

        What is deleted below them was no record: markers, and records that were aborted.
        """
        return {
            (row.group, TopicPartition(row.topic, row.partition)): row.end
            for row in self.rows
            if row.records_behind == 0 and row.end is not None
        }

    def exit_code(self, warning: float) -> int:
        """Return NEEDS_ATTENTION if data is lost, or will be within so many seconds."""
        if any(row.loses_within(warning) for row in self.rows):
            return NEEDS_ATTENTION
        return COULD_NOT if self.problems else DONE
