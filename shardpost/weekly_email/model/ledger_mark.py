"""What the ledger's topic was when a week used it, kept apart from Kafka in `ledger_marks`.

A ledger that lost its records says that nobody was mailed. So what it says of a week counts only
while its topic is the one of the week's marks, and still holds what it held then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shardpost.errors import ShardpostError
from shardpost.topics.store_topic import KnownStore, StoreTopic


@dataclass(frozen=True)
class LedgerMark:
    """One row of `ledger_marks`: which topic the ledger was at a time, and where it ended.

    The first mark of a week is written before its first mail: no record of the week lies before its
    ends. Later ones are written when a run has ended. `ends` are by partition. One with
    `accepted_by` is a person's, who took the ledger as it was then: those before it do not count.
    """

    week: str
    topic: str
    topic_id: str
    ends: tuple[int, ...]
    marked_at: datetime
    accepted_by: str | None = None


def require_partitions(ledger: StoreTopic, expected: int, source: str) -> None:
    """Refuse a ledger with another number of partitions; `source` says where the number is from."""
    if ledger.partitions != expected:
        raise ShardpostError(
            f"topic {ledger.name}: expected {expected} partitions ({source}), found"
            f" {ledger.partitions}: a shard is a partition of it, so their number must not change"
        )


def require_whole(ledger: StoreTopic, week: object, marks: Sequence[LedgerMark]) -> None:
    """Refuse a ledger that has lost records of the week since one of its marks."""
    start = tuple(map(min, zip(*(mark.ends for mark in marks), strict=False)))
    for mark in marks:
        known = KnownStore(mark.topic_id, start, mark.ends)
        if lost := ledger.what_is_lost(known):
            raise ShardpostError(
                f"week {week}: topic {ledger.name}, its ledger, is not what it was on"
                f" {mark.marked_at:%Y-%m-%d %H:%M} UTC: {lost}. Who got the e-mail of this week is"
                " no longer known, and a run could mail everybody again. Other weeks can be mailed;"
                f" for this one see `shardpost emails accept-ledger --week {week}`"
            )
