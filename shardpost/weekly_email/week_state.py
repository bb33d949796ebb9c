"""The state of a week: frozen, closed, paused, and whether its ledger lost records.

It is in the tables `frozen_weeks`, `closed_weeks`, `paused_weeks` and `ledger_marks`, read through
deltalake. A run has one `WeekState`, which reads each table once; decisions under a lock or after
fencing use a new one.

In a ledger that lost its records, every client looks open. So a week is mailed only while its topic
is that of the week's marks and still has the records of then. Marks are kept outside Kafka; rows
are only added.

A closed week is never mailed or reopened: its records were removed from the ledger, which has a
record of that in case the table is lost: a sender reads it after fencing (`Ledger.open`).

The locks let one process at a time send a shard of a week, with tables on a store on all machines.
"""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property

from deltalake.exceptions import DeltaError

from shardpost.delta import table_log
from shardpost.delta.query import select
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import TopicMark
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.locks.locks import all_exclusive, holders
from shardpost.settings.values import LEAST_LEDGER_DAYS
from shardpost.topics.guards import StoreTopic, describe_stores
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import SHARDS_READ_AT_ONCE, ShardLedger
from shardpost.weekly_email.model.ledger import CLOSED_STATES, WeekClosedError
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import (
    CLOSED_WEEKS,
    LEDGER_MARKS,
    PAUSED_WEEKS,
    ClosedWeek,
    LedgerMark,
    PausedWeek,
)
from shardpost.wording import counted

log = logging.getLogger(__name__)

LOCKS = "weekly_email-"


class WeekState:
    """The state of one week, with each table as of its first use."""

    def __init__(self, installation: Installation, week: IsoWeek) -> None:
        self.installation = installation
        self.week = week

    @cached_property
    def frozen_weeks(self) -> list[FrozenWeek]:
        """All weeks that are frozen, the newest first."""
        return FrozenWeeks(self.installation.tables).list_all()

    @property
    def frozen(self) -> FrozenWeek | None:
        """The week as it was frozen."""
        return next((known for known in self.frozen_weeks if known.week == str(self.week)), None)

    def frozen_before(self) -> FrozenWeek | None:
        """Return the last frozen week before with any client."""
        # Text such as 2026-W47 sorts in the order of the weeks.
        week = str(self.week)
        earlier = (known for known in self.frozen_weeks if known.recipients and known.week < week)
        return next(earlier, None)

    @cached_property
    def paused(self) -> PausedWeek | None:
        """How the week was paused; None if it is not."""
        last = last_pause(self.installation.tables, self.week)
        return last if last is not None and last.is_paused else None

    def closed(self, now: datetime) -> ClosedWeek | None:
        """Return the closed week; None if it is open.

        The ledger, which takes long, is read only for weeks old enough to be closed.
        """
        is_recent = now - self.week.end < timedelta(days=LEAST_LEDGER_DAYS)
        return self._closed_by_table or (None if is_recent else self._closed_by_ledger)

    @cached_property
    def _closed_by_table(self) -> ClosedWeek | None:
        return list_closed(self.installation.tables).get(str(self.week))

    @cached_property
    def _closed_by_ledger(self) -> ClosedWeek | None:
        """The closed week according to the ledger, even if only one partition has the record."""
        kafka = self.installation.kafka
        topic = kafka.topic("weekly-emails")
        shards = range(partition_counts(kafka, [topic])[topic])
        ledgers = [ShardLedger(kafka, self.week, shard) for shard in shards]
        with ThreadPoolExecutor(SHARDS_READ_AT_ONCE) as pool:
            found = list(pool.map(ShardLedger.closed, ledgers))
        closed = [one.at for one in found if one]
        if not closed:
            return None
        none = dict.fromkeys(CLOSED_STATES, 0)
        return ClosedWeek.of(self.week, max(closed), [one.counts if one else none for one in found])

    @cached_property
    def marks(self) -> list[LedgerMark]:
        """All marks of the ledger, including other weeks', oldest first."""
        return list_marks(self.installation.tables)

    def require_open(self, now: datetime) -> None:
        """Refuse a week that is closed."""
        if closed := self.closed(now):
            raise WeekClosedError(closed.explanation)

    def require_ledger(self) -> StoreTopic:
        """Return the ledger's topic; raises ShardpostError if it may lack records of the week.

        Also if Kafka may delete some, or if its number of partitions is wrong.
        """
        # Read in this order: another run marks the ledger, then freezes its week, then mails.
        _ = self.frozen_weeks, self.marks
        ledger = compacted_ledger(self.installation.kafka)
        self._require_whole(ledger)
        self._require_partitions(ledger)
        return ledger

    def why_incomplete(self) -> str | None:
        """Return the error of `require_ledger`, or None."""
        try:
            self.require_ledger()
        except ShardpostError as error:
            return str(error)
        return None

    def mark_start(self, ledger: StoreTopic, now: datetime) -> None:
        """Record the ledger's topic and ends before the week's first mail, unless recorded."""
        if not self._own_marks:
            add_mark(self.installation.tables, self._mark(ledger, now))

    def mark_end(self, now: datetime) -> None:
        """Record the ledger's ends after a run; a failure does not affect the run."""
        tables = self.installation.tables
        try:
            mark = self._mark(_ledger(self.installation.kafka), now)
            if not any(replace(known, marked_at=now) == mark for known in list_marks(tables)):
                add_mark(tables, mark)
        except (ShardpostError, DeltaError, OSError) as error:
            log.warning("%s: cannot record the end of the ledger: %s", self.week, error)

    def _mark(self, ledger: StoreTopic, now: datetime) -> LedgerMark:
        return LedgerMark(str(self.week), ledger.name, ledger.topic_id, ledger.high, now)

    def _require_whole(self, ledger: StoreTopic) -> None:
        """Refuse a ledger that has lost records of the week since one of its marks."""
        own = self._own_marks
        if not own and self.frozen:  # a run marks the ledger before it freezes
            raise ShardpostError(
                f"week {self.week}: its audience is frozen, but the table {LEDGER_MARKS.name} has"
                " no mark of it, so the ledger may have lost records of this week, and a run"
                " could mail everybody again. Restore the table from a backup, or see `shardpost"
                f" emails accept-ledger --week {self.week}`"
            )
        accepted = [number for number, mark in enumerate(own) if mark.accepted_by is not None]
        marks = own[max(accepted, default=0) :]
        start = tuple(map(min, zip(*(mark.ends for mark in marks), strict=False)))
        for mark in marks:
            if lost := ledger.lost_since(TopicMark(mark.topic_id, start, mark.ends)):
                raise ShardpostError(
                    f"week {self.week}: the ledger (topic {ledger.name}) has changed since"
                    f" {mark.marked_at:%Y-%m-%d %H:%M} UTC: {lost}. It is no longer known which"
                    " clients got this week's e-mail, and a run could mail everybody again. Other"
                    " weeks can be mailed; for this week see `shardpost emails accept-ledger"
                    f" --week {self.week}`"
                )

    def _require_partitions(self, ledger: StoreTopic) -> None:
        """Refuse a ledger whose number of partitions differs from before or from the settings."""
        expected = self.installation.settings.partitions
        source = "SHARDPOST_PARTITIONS, which may be set to the actual number"
        of_topic = [mark for mark in self.marks if mark.topic_id == ledger.topic_id]
        if of_topic:
            expected, source = len(of_topic[-1].ends), f"as in week {of_topic[-1].week}"
        elif self.frozen_weeks and not self.marks:
            last = max(self.frozen_weeks, key=lambda week: week.frozen_at)
            expected, source = last.shards, f"as in week {last.week}"
        if ledger.partitions != expected:
            raise ShardpostError(
                f"topic {ledger.name}: expected {counted(expected, 'partition')} ({source}), found"
                f" {ledger.partitions}: each shard is a partition of it, so the number must not"
                " change"
            )

    def first_offsets(self, partitions: int) -> dict[int, int]:
        """Return {shard: offset} before which the ledger has no records of the week.

        It comes from the week's first mark, and is {} if unknown: without a mark, or after the
        topic was recreated.
        """
        topics = {(mark.topic_id, len(mark.ends)) for mark in self._own_marks}
        is_one = len(topics) == 1 and all(topic_id for topic_id, _ in topics)
        if not is_one or topics != {(_ledger(self.installation.kafka).topic_id, partitions)}:
            return {}
        every = (mark.ends for mark in self._own_marks)
        return dict(enumerate(map(min, zip(*every, strict=True))))

    @property
    def is_begun(self) -> bool:
        """Whether a run has started the week."""
        return self.frozen is not None or bool(self._own_marks)

    @property
    def _own_marks(self) -> list[LedgerMark]:
        return [mark for mark in self.marks if mark.week == str(self.week)]

    @contextmanager
    def locked(self, shards: Iterable[int]) -> Iterator[None]:
        """Hold the lock of each shard; LockedError if a run is sending one of them."""
        what = f"the weekly e-mail of {self.week}, shard"
        names = {f"{LOCKS}{self.week}-{shard}": f"{what} {shard}," for shard in shards}
        with all_exclusive(self.installation.files, names):
            yield

    def is_being_sent(self) -> bool:
        """Return whether a run (with tables on an object store, on any machine) holds its locks."""
        locks = holders(self.installation.files, f"{LOCKS}{self.week}-")
        return any(lock.is_renewed for lock in locks)


def list_closed(tables: Tables) -> dict[str, ClosedWeek]:
    """Return {week: its last row} of the table `closed_weeks`."""
    in_order = "ORDER BY week, emptied_at NULLS FIRST"
    return {row.week: row for row in select(tables, CLOSED_WEEKS, ClosedWeek, in_order)}


def last_pause(tables: Tables, week: IsoWeek) -> PausedWeek | None:
    """Return the last row of a week in `paused_weeks`, paused or resumed."""
    rest = f"WHERE week = '{week}' ORDER BY at DESC LIMIT 1"
    return next(iter(select(tables, PAUSED_WEEKS, PausedWeek, rest)), None)


def list_marks(tables: Tables) -> list[LedgerMark]:
    """Return all marks, oldest first."""
    return select(tables, LEDGER_MARKS, LedgerMark, "ORDER BY marked_at")


def add_mark(tables: Tables, mark: LedgerMark) -> None:
    """Add a mark, as the newest."""

    def newest() -> LedgerMark:
        known = list_marks(tables)
        last = known[-1].marked_at if known else None
        return replace(mark, marked_at=later(mark.marked_at, last))

    table_log.append(tables, LEDGER_MARKS, newest)


def later(at: datetime, last: datetime | None) -> datetime:
    """Return a time after the last mark: another machine's clock may be ahead."""
    return at if last is None else max(at, last + timedelta(microseconds=1))


def compacted_ledger(kafka: Kafka) -> StoreTopic:
    """Return the ledger's topic as it is now; ShardpostError if Kafka may delete its records."""
    ledger = _ledger(kafka)
    ledger.require_compacted()
    return ledger


def _ledger(kafka: Kafka) -> StoreTopic:
    [ledger] = describe_stores(kafka, [kafka.topic("weekly-emails")])
    return ledger
