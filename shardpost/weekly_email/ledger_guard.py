"""Whether a run may rely on the ledger: it lost no records, and no other run is sending.

To a ledger that lost its records, every client looks open. So a week is mailed only while its
topic is the one of the week's marks, and still has the records that it had then. Marks are kept
apart from Kafka, in the table `ledger_marks`, through deltalake: no JVM. Rows are only added.

The locks let one process at a time send a shard of a week: of this machine or, where the tables are
on an object store, of all.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from deltalake.exceptions import DeltaError

from shardpost.delta import table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import select
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.locks.locks import all_exclusive, holders, remove_free
from shardpost.locks.shared_files import Files
from shardpost.topics.stores import KnownStore, StoreTopic, describe_stores
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import LEDGER_MARKS, LedgerMark
from shardpost.wording import counted


def require_whole(ledger: StoreTopic, week: object, marks: Sequence[LedgerMark]) -> None:
    """Refuse a ledger that has lost records of the week since one of its marks."""
    start = tuple(map(min, zip(*(mark.ends for mark in marks), strict=False)))
    for mark in marks:
        known = KnownStore(mark.topic_id, start, mark.ends)
        if lost := ledger.what_is_lost(known):
            raise ShardpostError(
                f"week {week}: the ledger (topic {ledger.name}) has changed since"
                f" {mark.marked_at:%Y-%m-%d %H:%M} UTC: {lost}. Who got the e-mail of this week is"
                " no longer known, and a run could mail everybody again. Other weeks can be mailed;"
                f" for this one see `shardpost emails accept-ledger --week {week}`"
            )


RESOLUTION = timedelta(microseconds=1)

log = logging.getLogger(__name__)


def list_marks(tables: Tables) -> list[LedgerMark]:
    """Return all marks, oldest first."""
    return select(tables, LEDGER_MARKS, LedgerMark, "ORDER BY marked_at")


def add_mark(tables: Tables, mark: LedgerMark) -> None:
    """Add a mark, as the newest: of two machines, one may have a clock that is behind."""

    def newest() -> LedgerMark:
        known = list_marks(tables)
        after = known[-1].marked_at + RESOLUTION if known else mark.marked_at
        return replace(mark, marked_at=max(mark.marked_at, after))

    table_log.append(tables, LEDGER_MARKS, newest)


def compacted_ledger(kafka: Kafka) -> StoreTopic:
    """Return the ledger's topic as it is now; ShardpostError if Kafka may delete its records."""
    ledger = _ledger(kafka)
    ledger.require_compacted()
    return ledger


def _ledger(kafka: Kafka) -> StoreTopic:
    [ledger] = describe_stores(kafka, [kafka.topic("weekly-emails")])
    return ledger


def first_offsets(installation: Installation, week: IsoWeek, partitions: int) -> dict[int, int]:
    """Return {shard: offset} below which the ledger has nothing of a week, by its first mark.

    {} where that is unknown: without a mark, or of a topic that was created again.
    """
    marks = [mark for mark in list_marks(installation.tables) if mark.week == str(week)]
    topics = {(mark.topic_id, len(mark.ends)) for mark in marks}
    is_one = len(topics) == 1 and all(mark.topic_id for mark in marks)
    if not is_one or topics != {(_ledger(installation.kafka).topic_id, partitions)}:
        return {}
    return dict(enumerate(map(min, zip(*(mark.ends for mark in marks), strict=True))))


LOCKS = "weekly_email-"
# Longer than a week is mailed.
LOCKS_DAYS = 14


def remove_old_locks(files: Files, now: datetime) -> None:
    """Remove what is left of the locks of weeks that nobody has mailed for long."""
    remove_free(files, LOCKS, now - timedelta(days=LOCKS_DAYS))


class LedgerGuard:
    """Whether runs of one week may rely on the ledger, and their locks."""

    def __init__(self, installation: Installation, week: IsoWeek) -> None:
        self._installation = installation
        self._week = week
        self._lock_prefix = f"{LOCKS}{week}-"

    def require_ledger(self) -> StoreTopic:
        """Return the ledger's topic; ShardpostError if it may lack records of the week.

        Or if Kafka may delete some, or its number of partitions is not the one that it has to have.
        """
        # In this order: another run marks the ledger, then freezes its week, then mails.
        frozen = FrozenWeeks(self._installation.tables).list_all()
        marks = list_marks(self._installation.tables)
        ledger = compacted_ledger(self._installation.kafka)
        require_whole(ledger, self._week, _of_week(self._week, marks, frozen))
        _require_partitions(ledger, marks, frozen, self._installation.partitions)
        return ledger

    def is_whole(self) -> bool:
        """Tell whether `require_ledger` finds nothing wrong."""
        try:
            self.require_ledger()
        except ShardpostError:
            return False
        return True

    def mark_start(self, ledger: StoreTopic, now: datetime) -> None:
        """Record what the ledger is before the week's first mail, unless that is on record."""
        if not any(mark.week == str(self._week) for mark in list_marks(self._installation.tables)):
            add_mark(self._installation.tables, self._mark(ledger, now))

    def mark_end(self, now: datetime) -> None:
        """Record how far the ledger goes after a run; a failure of that does not undo the run."""
        try:
            mark = self._mark(_ledger(self._installation.kafka), now)
            marks = list_marks(self._installation.tables)
            if not any(replace(known, marked_at=now) == mark for known in marks):
                add_mark(self._installation.tables, mark)
        except (ShardpostError, DeltaError, OSError) as error:
            log.warning("%s: cannot record the end of the ledger: %s", self._week, error)

    def _mark(self, ledger: StoreTopic, now: datetime) -> LedgerMark:
        return LedgerMark(str(self._week), ledger.name, ledger.topic_id, ledger.high, now)

    @contextmanager
    def locked(self, shards: Iterable[int]) -> Iterator[None]:
        """Hold the lock of each shard; LockedError if a run is sending one of them."""
        what = f"the weekly e-mail of {self._week}, shard"
        names = {f"{self._lock_prefix}{shard}": f"{what} {shard}," for shard in shards}
        with all_exclusive(self._installation.files, names):
            yield

    def is_being_sent(self) -> bool:
        """Tell whether a run is sending a shard of the week; by locks, so of this machine.

        Or, where the tables are on an object store, of any.
        """
        return any(lock.is_renewed for lock in holders(self._installation.files, self._lock_prefix))


def _of_week(
    week: IsoWeek, marks: Sequence[LedgerMark], frozen: Iterable[FrozenWeek]
) -> list[LedgerMark]:
    """Return the week's marks, from the last one that a person accepted on.

    ShardpostError for a frozen week without any: a run marks the ledger before it freezes.
    """
    own = [mark for mark in marks if mark.week == str(week)]
    if not own and any(known.week == str(week) for known in frozen):
        raise ShardpostError(
            f"week {week}: its audience is frozen, and the table {LEDGER_MARKS.name} has no mark of"
            " it: whether the ledger lost records of this week is unknown, and a run could mail"
            " everybody again. Restore the table from a backup, or see `shardpost emails"
            f" accept-ledger --week {week}`"
        )
    accepted = [number for number, mark in enumerate(own) if mark.accepted_by is not None]
    return own[max(accepted, default=0) :]


def _require_partitions(
    ledger: StoreTopic, marks: Sequence[LedgerMark], frozen: Sequence[FrozenWeek], by_settings: int
) -> None:
    """Refuse a ledger with another number of partitions than before, or than the settings say."""
    expected = by_settings
    source = "SHARDPOST_PARTITIONS, which may be set to the actual number"
    of_topic = [mark for mark in marks if mark.topic_id == ledger.topic_id]
    if of_topic:
        expected, source = len(of_topic[-1].ends), f"as in week {of_topic[-1].week}"
    elif frozen and not marks:
        last = max(frozen, key=lambda week: week.frozen_at)
        expected, source = last.shards, f"as in week {last.week}"
    if ledger.partitions != expected:
        raise ShardpostError(
            f"topic {ledger.name}: expected {counted(expected, 'partition')} ({source}), found"
            f" {ledger.partitions}: each shard is a partition of it, so the number must not change"
        )
