"""One compaction: from offset ranges to new versions of all tables, and their snapshot.

Each input, side by side: read and decode, append to its history, latest per key, upsert. Then the
holders, by what changed of the positions; then the counts.
"""

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from shardpost import __version__
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.holders.inputs import Unread
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.spark.compaction_run import CompactionRun
from shardpost.holders.spark.corrections import read_corrections
from shardpost.holders.spark.holder_updates import update_holders
from shardpost.holders.spark.latest import Changes
from shardpost.holders.spark.table_writer import TableWriter
from shardpost.holders.spark.topic_update import TopicUpdate, keep_rejected, update_topic
from shardpost.kafka.offset_ranges import OffsetRange, total_size
from shardpost.settings import Settings
from shardpost.spark import session


@dataclass(frozen=True)
class RunCounts:
    """Records that a run rejected, retries that it read, and those that are now the latest.

    Those `without_effect` are the other decodable ones.
    """

    rejected: int = 0
    retries: int = 0
    applied: int = 0
    without_effect: int = 0


class BuiltSnapshot(NamedTuple):
    """A snapshot that is not committed yet, and what its run did."""

    snapshot: Snapshot
    counts: RunCounts


def build_snapshot(
    settings: Settings,
    partitions: Mapping[str, int],
    last: Snapshot | None,
    unread: Unread,
    looked_at: datetime,
) -> BuiltSnapshot:
    """Write all tables up to the ends of what is unread; commit no snapshot.

    `partitions` is {topic: number of partitions}, of the inputs, retry topics and share-holders.
    """
    spark = session.start(COMPACT_POSITIONS.name)
    tables = TableWriter.at_snapshot(spark, settings, last, run=str(uuid.uuid4()))
    run = CompactionRun(settings, tables, last, partitions, total_size(unread.ranges))
    run.set_shuffle_partitions()
    updates, retries = _update_topics(run, unread.ranges)
    done = _run_counts(updates, retries)
    for update in updates:
        if update.rejected:
            keep_rejected(run, update)
    changes = (update.changes for update in updates if update.source.name == "positions")
    counts = _update_holders(run, next(changes, None), done.rejected)
    snapshot = Snapshot(
        number=run.number,
        committed_at=datetime.now(UTC),
        looked_at=looked_at,
        end_offsets=unread.ends,
        tables=dict(tables.versions),
        counts=counts,
        code_version=__version__,
        run=tables.run,
        country=settings.country,
        shards=run.shards,
    )
    return BuiltSnapshot(snapshot, done)


def _update_topics(
    run: CompactionRun, ranges: Sequence[OffsetRange]
) -> tuple[list[TopicUpdate], int]:
    """Update the tables of all inputs that have anything new; return that, and how many retries."""
    topics = [source.topic for source in run.inputs]
    of_retries = [range_ for range_ in ranges if range_.topic not in topics]
    corrections = read_corrections(run.spark, run.settings, of_retries, topics)
    with ThreadPoolExecutor(len(topics)) as pool:  # of a few records, planning takes longest
        updates = pool.map(
            lambda source: update_topic(
                run,
                source,
                [range_ for range_ in ranges if range_.topic == source.topic],
                corrections.get(source.topic),
            ),
            run.inputs,
        )
        found = [update for update in updates if update]
    return found, sum(one.count for one in corrections.values())


def _run_counts(updates: Sequence[TopicUpdate], retries: int) -> RunCounts:
    return RunCounts(
        rejected=sum(update.rejected for update in updates),
        retries=retries,
        applied=sum(update.changes.retries for update in updates),
        without_effect=sum(update.without_effect for update in updates),
    )


def _update_holders(run: CompactionRun, positions: Changes | None, rejected: int) -> Counts:
    """Update the holders by what changed of positions; return the counts of the whole view."""
    before = run.last.counts if run.last else Counts()
    change = update_holders(run, positions.rows if positions else None)
    return Counts(
        before.positions + (positions.opened if positions else 0),
        before.holders + change.holders,
        before.held + change.held,
        before.rejected + rejected,
    )
