"""What a list is compared with: the newest snapshot, and what came to the topic after it.

All that is there has to be known. So of what no compaction has read, only an import's own records
are taken, which a run of it wrote that was broken off; after anything else it is "compact first".
"""

from dataclasses import dataclass

from shardpost.dead_letters.model.letter_format import ORIGIN_TOPIC, header_text
from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders.model.unread import ranges_to_read
from shardpost.installation import Installation
from shardpost.kafka import topic_metadata
from shardpost.kafka.coordinates import OffsetRange
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import open_transactions, read_to_end, record_of, stable_ends
from shardpost.kafka.topic_metadata import changed_topics, topic_ids

COMPACT = "run `shardpost compact` first"


@dataclass(frozen=True)
class Base:
    """A snapshot, the ends of `positions` {partition: offset}, and what lies between them."""

    snapshot: Snapshot
    ends: dict[int, int]
    unread: list[OffsetRange]


def find_base(installation: Installation) -> Base:
    """Return what is known now; ShardpostError if a compaction has to run, or to be waited for."""
    snapshot = snapshots.newest(installation.tables)
    if snapshot is None:
        raise ShardpostError(f"there is no snapshot to compare a list with: {COMPACT}")
    positions = installation.kafka.topic("positions")
    retries = installation.settings.retry_rules.retry_topic(positions)
    counts = topic_metadata.partition_counts(installation.kafka, [positions, retries])
    known = {topic: id_ for topic, id_ in snapshot.topic_ids.items() if topic in counts}
    if changed := changed_topics(known, topic_ids(installation.kafka, counts)):
        raise not_compared("; ".join(changed.values()))
    reached = stable_ends(installation.kafka, counts)
    if hidden := open_transactions(installation.kafka, reached):
        raise ShardpostError(
            f"open transaction at {hidden[0].begins}: what comes after it cannot be read yet; Kafka"
            " ends it after a minute, if its producer does not: run again then"
        )
    unread = ranges_to_read(snapshot.end_offsets, reached.stable)
    for range_ in [range_ for range_ in unread if range_.topic == retries]:
        _require_no_corrections(installation.kafka, range_, positions)
    marks = reached.stable[positions]
    for partition, (_, end) in marks.items():
        read = snapshot.end_offsets.get(positions, {}).get(partition, 0)
        if read > end:
            raise not_compared(f"{positions}[{partition}]: read up to {read}, but it ends at {end}")
    own = [range_ for range_ in unread if range_.topic == positions]
    return Base(snapshot, {partition: end for partition, (_, end) in marks.items()}, own)


def _require_no_corrections(kafka: Kafka, retries: OffsetRange, positions: str) -> None:
    """Refuse a retry of a record of positions; retries of other topics change no table of it."""
    found = read_to_end(kafka, retries.topic_partition, start=retries.first, committed=True)
    for record in map(record_of, found):
        if header_text(dict(record.headers).get(ORIGIN_TOPIC)) == positions:
            raise not_compared(f"{record.coordinates}: a correction that is not in the tables yet")


def not_compared(why: str) -> ShardpostError:
    """Return the error that the tables do not have all that is there."""
    return ShardpostError(f"{why}: a list cannot be compared with old positions; {COMPACT}")
