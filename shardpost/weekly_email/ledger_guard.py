"""The check, before anybody is mailed, that the ledger is whole as far as can be known.

`ledger_marks` says what the ledger's topic was when the week used it.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from deltalake.exceptions import DeltaError

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.topics.store_topic import StoreTopic
from shardpost.topics.stores import describe_stores
from shardpost.weekly_email import frozen_weeks, ledger_marks
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger_mark import LedgerMark, require_partitions, require_whole

log = logging.getLogger(__name__)


def require_ledger(settings: Settings, week: IsoWeek) -> StoreTopic:
    """Return the ledger's topic; ShardpostError if it may lack records of the week.

    Or if Kafka may delete some, or its number of partitions is not the one that it has to have.
    """
    marks = ledger_marks.list_all(settings)  # first: another run may add one that is newer
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
    marks = ledger_marks.list_all(settings)
    if any(mark.week == str(week) for mark in marks):
        return
    before = _of_week(settings, week, ledger, marks)
    first = before[0] if before else LedgerMark("", ledger.name, ledger.topic_id, ledger.high, now)
    ledger_marks.add(settings, replace(first, week=str(week), marked_at=now, accepted_by=None))


def mark_end(settings: Settings, week: IsoWeek, now: datetime) -> None:
    """Record how far the ledger goes after a run; the run is not undone by a failure of that."""
    try:
        [ledger] = describe_stores(settings, [settings.topic("weekly-emails")])
        mark = LedgerMark(str(week), ledger.name, ledger.topic_id, ledger.high, now)
        known = ledger_marks.list_all(settings)
        if not any(replace(one, marked_at=now) == mark for one in known):
            ledger_marks.add(settings, mark)
    except (ShardpostError, DeltaError, OSError) as error:
        log.warning("%s: the ledger's end is not on record: %s", week, error)


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
    return settings.partitions, "SHARDPOST_PARTITIONS, which may be set to what is there"
