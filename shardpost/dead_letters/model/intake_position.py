"""Where the intake of a foreign partition goes on, and what it finds missing there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardpost.kafka.coordinates import TopicPartition

GONE = "gone unread: Kafka deleted them first, so sweep more often or keep that topic for longer"
RECREATED = (
    "gone unread, if there were any: the topic was deleted and recreated, and the new one is read"
    " from its start"
)
CUT_OFF = (
    "were read and are gone: the topic was cut off or recreated, so it is read again from its start"
)
PERHAPS_A_MARKER = (
    "deleted: the marker of a transaction, or one letter that is gone unread: an older version has"
    " committed the offset before it, without what is needed to tell"
)
TOO_LARGE = "too large for a letter: it is only in that topic"


@dataclass(frozen=True)
class Gap:
    """Offsets of a foreign partition that were not taken in, and why; None: its end is unknown."""

    partition: TopicPartition
    first: int
    last: int | None
    reason: str

    def __str__(self) -> str:
        until = "on" if self.last is None else f"to {self.last}"
        return f"{self.partition}: offsets {self.first} {until}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the form of the gaps of `letters sweep --json`; both offsets are of the gap."""
        topic, partition = self.partition
        place = {"topic": topic, "partition": partition, "from": self.first, "to": self.last}
        return {**place, "reason": self.reason}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Gap":
        """Return the gap of which that is the form."""
        partition = TopicPartition(form["topic"], form["partition"])
        return cls(partition, form["from"], form["to"], form["reason"])


class Taken(NamedTuple):
    """Up to which offset a partition was taken in, of which topic; None: committed without it."""

    offset: int
    topic_id: str | None


class There(NamedTuple):
    """What is there: the topic's id, the low watermark, the end of what is committed."""

    topic_id: str | None
    low: int
    end: int


def next_offset(
    partition: TopicPartition, taken: Taken | None, there: There
) -> tuple[int, list[Gap]]:
    """Return the offset to read next, and what is missing.

    Where a topic was recreated, all that the new one has is unread. Older versions committed no id,
    and the offset after the last letter: the marker of its transaction is at that offset.
    """
    if taken is None:
        return there.low, []
    if taken.topic_id != there.topic_id and None not in (taken.topic_id, there.topic_id):
        lost = [Gap(partition, taken.offset, None, RECREATED)]
        if there.low > 0:
            lost.append(Gap(partition, 0, there.low - 1, GONE))
        return there.low, lost
    if taken.offset > there.end:
        return there.low, [Gap(partition, there.end, taken.offset - 1, CUT_OFF)]
    if taken.offset < there.low:
        is_of_older_version = taken.topic_id is None and there.topic_id is not None
        if is_of_older_version and there.low - taken.offset == 1:
            return there.low, [Gap(partition, taken.offset, taken.offset, PERHAPS_A_MARKER)]
        return there.low, [Gap(partition, taken.offset, there.low - 1, GONE)]
    return taken.offset, []
