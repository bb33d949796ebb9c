"""Shardpost's own readers that keep their offsets in tables: compactions, the table of letters.

Only what the tables say counts for them: the offsets that a compaction commits to its group are for
other tools.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from shardpost.dead_letters import letters_table_offsets
from shardpost.delta import snapshots
from shardpost.delta.table_errors import table_errors
from shardpost.errors import ShardpostError
from shardpost.holders.published_partitions import GROUP as PUBLISHED
from shardpost.holders.rejected_letters import GROUP as REJECTED
from shardpost.holders.results import GROUP as COMPACTION
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.topic_ids import changed_topics, topic_ids
from shardpost.lag.model.position import Position
from shardpost.settings import Settings

LETTERS_TABLE = "shardpost-letters-table"
OWN = (COMPACTION, LETTERS_TABLE)
# Groups whose numbers are no offsets (published_partitions.py, rejected_letters.py).
_NOTES = (PUBLISHED, f"{REJECTED}-")


def has_notes(group: str) -> bool:
    """Tell whether what a group has committed are notes of ours, and not how far it has read."""
    return group.startswith(_NOTES)


def own_positions(
    settings: Settings, counts: Mapping[str, int], only: Collection[str], problems: list[str]
) -> list[Position]:
    """Return how far our own readers are, in topics with so many partitions.

    Of all, or only of groups of these names. What cannot be read becomes a problem.
    """
    readers: dict[str, Callable[[], Iterator[Position]]] = {
        COMPACTION: lambda: _compaction(settings, counts),
        LETTERS_TABLE: lambda: _letters_table(settings),
    }
    found: list[Position] = []
    for name, positions in readers.items():
        if only and name not in only:
            continue
        try:
            with table_errors():
                found += positions()
        except ShardpostError as error:
            problems.append(f"how far {name} has read is not known: {error}")
    return found


def _compaction(settings: Settings, counts: Mapping[str, int]) -> Iterator[Position]:
    last = snapshots.newest(settings)
    if last is None:
        return
    there = [topic for topic in last.end_offsets if topic in counts]
    recreated = changed_topics(last.topic_ids, topic_ids(settings, there))
    for topic in there:
        read = last.end_offsets[topic]
        for partition in range(counts[topic]):
            at = TopicPartition(topic, partition)
            was_recreated = topic in recreated
            yield Position(COMPACTION, at, read.get(partition, 0), was_recreated=was_recreated)


def _letters_table(settings: Settings) -> Iterator[Position]:
    for partition, offset in letters_table_offsets.next_offsets(settings).items():
        yield Position(LETTERS_TABLE, partition, offset)
