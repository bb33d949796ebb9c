"""The counts of all weeks, kept in memory: who asks does not wait until 52 weeks are read.

A thread reads the weeks whose counts are not known, or had records since; the newest first. What is
known already is given at once.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from shardpost.delta.object_store import Tables
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.topic_metadata import partition_counts, topic_ids
from shardpost.weekly_email import week_state
from shardpost.weekly_email.delivery_status import WeekStatus, audience_of
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.kept_folds import KeptFolds
from shardpost.weekly_email.limits import totals
from shardpost.weekly_email.model.ledger import WEEK_BYTES
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import ShardStatus, counts_document
from shardpost.weekly_email.model.week_tables import ClosedWeek

# Who asks waits so long for counts that are being read.
WAIT_SECONDS = 0.25


@dataclass(frozen=True)
class KnownWeek:
    """A week that a run has begun: its row if it is frozen, how it was closed if it is."""

    week: IsoWeek
    frozen: FrozenWeek | None
    closed: ClosedWeek | None


def known_weeks(tables: Tables) -> list[KnownWeek]:
    """Return the weeks that a run has begun, the newest first; by the tables alone."""
    frozen = {row.week: row for row in FrozenWeeks(tables).list_all()}
    closed = week_state.list_closed(tables)
    begun = {mark.week for mark in week_state.list_marks(tables)}
    names = sorted(frozen.keys() | closed.keys() | begun, reverse=True)
    return [KnownWeek(IsoWeek.parse(name), frozen.get(name), closed.get(name)) for name in names]


class Totals(NamedTuple):
    """{week: {state: clients}} as far as they are known, whether some are being read.

    `problem` is why some cannot be read.
    """

    counts: dict[str, dict[str, int]]
    is_reading: bool
    problem: str | None


class KeptTotals:
    """The counts of the weeks, read in a thread that ends when all are known."""

    def __init__(self, folds: KeptFolds) -> None:
        self._folds = folds
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._known: dict[str, dict[str, int]] = {}
        self._stale: set[str] = set()
        self._ends: dict[tuple[str | None, int], int] | None = None
        self._problem: str | None = None

    def of_weeks(
        self, installation: Installation, weeks: Sequence[KnownWeek], now: datetime
    ) -> Totals:
        """Return the counts of weeks as far as they are known now; the rest is being read."""
        open_ = [known.week for known in weeks if known.closed is None]
        found = self._ask(installation, open_, now)
        of_closed = {
            str(known.week): totals_of([*map(ShardStatus, known.closed.shards)])
            for known in weeks
            if known.closed is not None
        }
        return found._replace(counts={**found.counts, **of_closed})

    def _ask(self, installation: Installation, weeks: list[IsoWeek], now: datetime) -> Totals:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                given = (installation, weeks, now)
                self._thread = threading.Thread(target=self._read, args=given, daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(WAIT_SECONDS)
        return Totals(dict(self._known), thread.is_alive(), self._problem)

    def _read(self, installation: Installation, weeks: list[IsoWeek], now: datetime) -> None:
        try:
            self._look(installation.kafka)
            for week in weeks:
                if str(week) not in self._known or str(week) in self._stale:
                    self._stale.discard(str(week))
                    self._known[str(week)] = self._counts(installation, week, now)
            self._problem = None
        except ShardpostError as error:
            self._problem = str(error)
            self._ends = None  # next time all are read again

    def _look(self, kafka: Kafka) -> None:
        """Find the weeks that have had records since the last time."""
        topic = kafka.topic("weekly-emails")
        counts = partition_counts(kafka, [topic])
        ends = watermarks(kafka, counts, committed=True)[topic]
        of = topic_ids(kafka, [topic]).get(topic)
        before, self._ends = self._ends, {(of, shard): end for shard, (_, end) in ends.items()}
        if before is None or before.keys() != self._ends.keys():
            self._known.clear()
            return
        for at, end in self._ends.items():
            if end != before[at]:
                partition = TopicPartition(topic, at[1])
                start = before[at] if before[at] < end else 0
                for message in read_to_end(kafka, partition, start=start, committed=True):
                    week = (message.key() or b"")[:WEEK_BYTES]
                    self._stale.add(week.decode(errors="replace"))

    def _counts(self, installation: Installation, week: IsoWeek, now: datetime) -> dict[str, int]:
        topic = installation.kafka.topic("weekly-emails")
        partitions = partition_counts(installation.kafka, [topic])[topic]
        audience = audience_of(installation.tables, week, now)
        status = WeekStatus(installation, week, audience, partitions)
        return totals_of(self._folds.by_shard(status))


def totals_of(shards: Sequence[ShardStatus]) -> dict[str, int]:
    """Return {state: clients} of all shards."""
    rows: Sequence[Mapping[str, int]] = counts_document(
        IsoWeek(2000, 1), (shard.counts for shard in shards)
    )["shards"]
    return totals(rows)
