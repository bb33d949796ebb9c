"""Whether a run may rely on the ledger: it lost no records, and no other run is sending.

To a ledger that lost its records, every client looks open. So a week is mailed only while its
topic is the one of the week's marks, and still has the records that it had then. Marks are kept
apart from Kafka, in the table `ledger_marks`, through deltalake: no JVM. Rows are only added.

The locks let one process at a time of this machine send a shard of a week.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, rows
from shardpost.delta.table_log import VersionExistsError
from shardpost.errors import ShardpostError
from shardpost.locks import exclusive, holders
from shardpost.settings import Settings
from shardpost.topics.stores import KnownStore, StoreTopic, describe_stores
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import LEDGER_MARKS


@dataclass(frozen=True)
class LedgerMark:
    """One row of `ledger_marks`: which topic held the ledger at a time, and its high watermarks.

    The first mark of a week is written before its first mail: no record of the week has an offset
    below its `ends`. Later marks are written at the end of each run. `ends` are by partition. A
    mark with `accepted_by` was made when a person accepted the ledger: earlier marks of the week
    do not count.
    """

    week: str
    topic: str
    topic_id: str
    ends: tuple[int, ...]
    marked_at: datetime
    accepted_by: str | None = None


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


SCHEMA = arrow_schema(LEDGER_MARKS)
RESOLUTION = timedelta(microseconds=1)
# More than the runs that begin at the same moment.
MOST_CONFLICTS = 20

log = logging.getLogger(__name__)


def list_marks(settings: Settings) -> list[LedgerMark]:
    """Return all marks, oldest first."""
    if not exists(settings, LEDGER_MARKS):
        return []
    sql = "SELECT * FROM ledger_marks ORDER BY marked_at"
    found = rows(settings, sql, {LEDGER_MARKS: None})
    return [LedgerMark(**row | {"ends": tuple(row["ends"])}) for row in found]


def add_mark(settings: Settings, mark: LedgerMark) -> None:
    """Add a mark, as the newest: of two machines, one may have a clock that is behind.

    Retries while other runs create the table at the same time.
    """
    for _ in range(MOST_CONFLICTS):
        try:
            return _append_mark(settings, mark)
        except (CommitFailedError, VersionExistsError) as error:
            log.info("%s: retrying the ledger mark: %s", mark.week, error)
    return _append_mark(settings, mark)


def _append_mark(settings: Settings, mark: LedgerMark) -> None:
    known = list_marks(settings)
    if known:
        mark = replace(mark, marked_at=max(mark.marked_at, known[-1].marked_at + RESOLUTION))
    table = table_log.opened(settings, LEDGER_MARKS)
    write_deltalake(table, pa.Table.from_pylist([asdict(mark)], SCHEMA), mode="append")


def compacted_ledger(settings: Settings) -> StoreTopic:
    """Return the ledger's topic as it is now; ShardpostError if Kafka may delete its records."""
    ledger = _ledger(settings)
    ledger.require_compacted()
    return ledger


def _ledger(settings: Settings) -> StoreTopic:
    [ledger] = describe_stores(settings, [settings.topic("weekly-emails")])
    return ledger


class LedgerGuard:
    """Whether runs of one week may rely on the ledger, and their locks."""

    def __init__(self, settings: Settings, week: IsoWeek) -> None:
        self._settings = settings
        self._week = week
        self._lock_prefix = f"weekly_email-{week}-"

    def require_ledger(self) -> StoreTopic:
        """Return the ledger's topic; ShardpostError if it may lack records of the week.

        Or if Kafka may delete some, or its number of partitions is not the one that it has to have.
        """
        # In this order: another run marks the ledger, then freezes its week, then mails.
        frozen = FrozenWeeks(self._settings).list_all()
        marks = list_marks(self._settings)
        ledger = compacted_ledger(self._settings)
        require_whole(ledger, self._week, _of_week(self._week, marks, frozen))
        _require_partitions(ledger, marks, frozen, self._settings.partitions)
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
        if not any(mark.week == str(self._week) for mark in list_marks(self._settings)):
            add_mark(self._settings, self._mark(ledger, now))

    def mark_end(self, now: datetime) -> None:
        """Record how far the ledger goes after a run; a failure of that does not undo the run."""
        try:
            mark = self._mark(_ledger(self._settings), now)
            marks = list_marks(self._settings)
            if not any(replace(known, marked_at=now) == mark for known in marks):
                add_mark(self._settings, mark)
        except (ShardpostError, DeltaError, OSError) as error:
            log.warning("%s: cannot record the end of the ledger: %s", self._week, error)

    def _mark(self, ledger: StoreTopic, now: datetime) -> LedgerMark:
        return LedgerMark(str(self._week), ledger.name, ledger.topic_id, ledger.high, now)

    @contextmanager
    def locked(self, shards: Iterable[int]) -> Iterator[None]:
        """Hold the lock of each shard; LockedError if a run is sending one of them."""
        with ExitStack() as locks:
            for shard in shards:
                what = f"the weekly e-mail of {self._week}, shard {shard},"
                locks.enter_context(exclusive(self._settings, f"{self._lock_prefix}{shard}", what))
            yield

    def is_being_sent(self) -> bool:
        """Tell whether a run of this machine is sending a shard of the week."""
        return any(path.name.startswith(self._lock_prefix) for path, _ in holders(self._settings))


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
    ledger: StoreTopic,
    marks: Sequence[LedgerMark],
    frozen: Sequence[FrozenWeek],
    by_settings: int,
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
            f"topic {ledger.name}: expected {expected} partitions ({source}), found"
            f" {ledger.partitions}: each shard is a partition of it, so the number must not change"
        )
