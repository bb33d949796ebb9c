"""Whether a run may rely on the ledger: it is whole, and nobody else is sending.

A ledger that lost its records says that nobody was mailed. So what it says of a week counts only
while its topic is the one of the week's marks, and still holds what it held then. Marks are kept
apart from Kafka, in the table `ledger_marks`, through deltalake: no JVM. Rows are only added.

By the locks, on this machine one process at a time has a week's shard.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from deltalake.exceptions import DeltaError

from shardpost.delta import table_log
from shardpost.delta.query import select
from shardpost.errors import ShardpostError
from shardpost.locks import exclusive, holders
from shardpost.settings import Settings
from shardpost.topics.stores import KnownStore, StoreTopic, describe_stores
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import LEDGER_MARKS, LedgerMark


def require_partitions(ledger: StoreTopic, expected: int, source: str) -> None:
    """Refuse a ledger with another number of partitions; `source` says where the number is from."""
    if ledger.partitions != expected:
        raise ShardpostError(
            f"topic {ledger.name}: expected {expected} partitions ({source}), found"
            f" {ledger.partitions}: each shard is a partition of it, so the number must not change"
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


RESOLUTION = timedelta(microseconds=1)

log = logging.getLogger(__name__)


def list_marks(settings: Settings) -> list[LedgerMark]:
    """Return all marks, oldest first."""
    return select(settings, LEDGER_MARKS, LedgerMark, "ORDER BY marked_at")


def add_mark(settings: Settings, mark: LedgerMark) -> None:
    """Add a mark, as the newest: of two machines, one may have a clock that is behind."""

    def newest() -> LedgerMark:
        known = list_marks(settings)
        after = known[-1].marked_at + RESOLUTION if known else mark.marked_at
        return replace(mark, marked_at=max(mark.marked_at, after))

    table_log.append(settings, LEDGER_MARKS, newest)


def require_ledger(settings: Settings, week: IsoWeek) -> StoreTopic:
    """Return the ledger's topic; ShardpostError if it may lack records of the week.

    Or if Kafka may delete some, or its number of partitions is not the one that it has to have.
    """
    marks = list_marks(settings)  # first: another run may add one that is newer
    [ledger] = describe_stores(settings, [settings.topic("weekly-emails")])
    ledger.require_compacted()
    require_whole(ledger, week, _of_week(settings, week, ledger, marks))
    require_partitions(ledger, *_expected_partitions(settings, ledger, marks))
    return ledger


def is_whole(settings: Settings, week: IsoWeek) -> bool:
    """Tell whether `require_ledger` finds nothing wrong."""
    try:
        require_ledger(settings, week)
    except ShardpostError:
        return False
    return True


def mark_start(settings: Settings, week: IsoWeek, ledger: StoreTopic, now: datetime) -> None:
    """Record what the ledger is before the week's first mail, unless that is on record."""
    marks = list_marks(settings)
    if any(mark.week == str(week) for mark in marks):
        return
    before = _of_week(settings, week, ledger, marks)
    first = before[0] if before else LedgerMark("", ledger.name, ledger.topic_id, ledger.high, now)
    add_mark(settings, replace(first, week=str(week), marked_at=now, accepted_by=None))


def mark_end(settings: Settings, week: IsoWeek, now: datetime) -> None:
    """Record how far the ledger goes after a run; the run is not undone by a failure of that."""
    try:
        [ledger] = describe_stores(settings, [settings.topic("weekly-emails")])
        mark = LedgerMark(str(week), ledger.name, ledger.topic_id, ledger.high, now)
        known = list_marks(settings)
        if not any(replace(one, marked_at=now) == mark for one in known):
            add_mark(settings, mark)
    except (ShardpostError, DeltaError, OSError) as error:
        log.warning("%s: cannot record the end of the ledger: %s", week, error)


def _of_week(
    settings: Settings, week: IsoWeek, ledger: StoreTopic, marks: Sequence[LedgerMark]
) -> list[LedgerMark]:
    """Return the week's marks.

    A week without, frozen by an older version, began at offset 0 of the topic of the oldest mark:
    the newer version marks a week before it is frozen, so that topic held what the week wrote.
    """
    found = [mark for mark in marks if mark.week == str(week)]
    accepted = [number for number, mark in enumerate(found) if mark.accepted_by is not None]
    found = found[max(accepted, default=0) :]
    if found or (frozen := frozen_weeks.find(settings, week)) is None:
        return found
    if marks:
        return [replace(marks[0], ends=(0,) * len(marks[0].ends)), marks[0]]
    start = (0,) * ledger.partitions
    return [LedgerMark(str(week), ledger.name, ledger.topic_id, start, frozen.frozen_at)]


def _expected_partitions(
    settings: Settings, ledger: StoreTopic, marks: Sequence[LedgerMark]
) -> tuple[int, str]:
    """Return how many partitions the ledger has to have, and where that is said."""
    of_topic = [mark for mark in marks if mark.topic_id == ledger.topic_id]
    if of_topic:
        return len(of_topic[-1].ends), f"as in week {of_topic[-1].week}"
    if not marks and (last := frozen_weeks.newest(settings)) is not None:
        return last.shards, f"as in week {last.week}"
    return settings.partitions, "SHARDPOST_PARTITIONS, which may be set to the actual number"


@contextmanager
def locked_shards(settings: Settings, week: IsoWeek, shards: Iterable[int]) -> Iterator[None]:
    """Hold the lock of each shard; LockedError if a run is sending one of them."""
    with ExitStack() as locks:
        for shard in shards:
            name = f"{_prefix(week)}{shard}"
            what = f"the weekly e-mail of {week}, shard {shard},"
            locks.enter_context(exclusive(settings, name, what))
        yield


def is_being_sent(settings: Settings, week: IsoWeek) -> bool:
    """Tell whether a run of this machine is sending a shard of the week."""
    return any(path.name.startswith(_prefix(week)) for path, _ in holders(settings))


def _prefix(week: IsoWeek) -> str:
    return f"weekly_email-{week}-"
