"""Old weeks are closed: their records leave the ledger, and nobody is ever mailed of them again.

A ledger without records says that nobody was mailed. So first each shard gets a record that closes
the week, behind the fence of a sender: every sender reads it behind its own fence, and refuses.
Only when all shards have it, the records go. The steps of a week, each of which may be the last
before a crash; the next run goes on:

1. the record that closes it, in each shard, with the counts as of then;
2. its row in `closed_weeks`, for everybody who asks, and should the ledger be lost;
3. tombstones for its records;
4. a second row, which says that they are gone.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from shardpost.delta.table_errors import table_errors
from shardpost.errors import ShardpostError
from shardpost.locks import LockedError
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.topics.stores import describe_stores
from shardpost.weekly_email import closed_weeks, frozen_weeks, ledger_marks, ledger_topic
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ages import AgeClock
from shardpost.weekly_email.model.closed_week import STATES, closed_value, closed_week
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.unknown_deliveries import sending_to_unknown
from shardpost.weekly_email.shard_locks import locked

# Tombstones of one transaction.
BATCH = 1000
WHY = "the week is closed"


@dataclass
class ClosedWeeks:
    """What was closed, or with `dry_run` would be: weeks, and how many records left the ledger.

    `postponed` says of each week that is old, and could not be closed, why.
    """

    dry_run: bool
    weeks: list[str] = field(default_factory=list)
    records: int = 0
    postponed: dict[str, str] = field(default_factory=dict)
    warning: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return it in words."""
        verb = "would be closed" if self.dry_run else "closed"
        named = f": {', '.join(self.weeks)}" if self.weeks else ""
        line = f"ledger: {len(self.weeks)} weeks {verb}{named}; {self.records} records leave it"
        lines = [f"{week}: not closed now: {why}" for week, why in self.postponed.items()]
        return [line, *lines, *([self.warning] if self.warning else [])]


def close_old(settings: Settings, now: datetime, *, dry_run: bool = False) -> ClosedWeeks:
    """Close the weeks whose last run was more than SHARDPOST_LEDGER_DAYS ago.

    A week is closed when its audience was erased (`old_audiences.py`), which goes before; one that
    is being mailed is postponed.
    """
    result = ClosedWeeks(dry_run)
    with table_errors():
        known = _last_used(settings)
        clock = AgeClock.of(now, (week.end for week in known))
        result.warning = clock.warning
        closed = {week for week, row in closed_weeks.list_all(settings).items() if row.emptied_at}
        for week, times in known.items():
            if str(week) not in closed and clock.is_older(settings.ledger_days, week.end, *times):
                _try_to_close(settings, week, now, result)
    return result


def _last_used(settings: Settings) -> dict[IsoWeek, list[datetime]]:
    """Return, of each week that ever was in the ledger, when it was frozen and mailed."""
    found: dict[str, list[datetime]] = defaultdict(list)
    for frozen in frozen_weeks.list_all(settings):
        found[frozen.week].append(frozen.frozen_at)
    for mark in ledger_marks.list_all(settings):
        found[mark.week].append(mark.marked_at)
    return {IsoWeek.parse(week): found[week] for week in sorted(found)}


def _try_to_close(settings: Settings, week: IsoWeek, now: datetime, result: ClosedWeeks) -> None:
    try:
        _require_no_audience(settings, week, now, result)
        # Also of a ledger that lost records: to close a week is how nobody is mailed twice.
        [ledger] = describe_stores(settings, [settings.topic("weekly-emails")])
        ledger.require_compacted()
        shards = range(ledger.partitions)
        if result.dry_run:
            result.records += sum(len(ledger_topic.keys(settings, week, one)) for one in shards)
        else:
            with locked(settings, week, shards):
                result.records += _close(settings, week, shards, now)
        result.weeks.append(str(week))
    except LockedError as error:
        result.postponed[str(week)] = error.holder
    except ShardpostError as error:
        result.postponed[str(week)] = str(error)


def _require_no_audience(
    settings: Settings, week: IsoWeek, now: datetime, result: ClosedWeeks
) -> None:
    """Refuse a week whose audience is there; a dry run knows that it goes before."""
    frozen = frozen_weeks.find(settings, week)
    if frozen and frozen.audience_erased_at is None and not result.dry_run:
        raise ShardpostError(f"its audience is not erased yet, on {now:%Y-%m-%d}")


def _close(settings: Settings, week: IsoWeek, shards: Sequence[int], now: datetime) -> int:
    """Close a week; return how many records left the ledger."""
    counts = []
    for shard in shards:
        step(f"close {week} shard {shard}")
        counts.append(_close_shard(settings, week, shard, now))
    step(f"record {week}")
    row = closed_weeks.list_all(settings).get(str(week))
    if row is None:
        row = closed_week(week, now, counts)
        closed_weeks.add(settings, row)
    records = 0
    for shard in shards:
        step(f"empty {week} shard {shard}")
        records += _empty_shard(settings, week, shard)
    step(f"finish {week}")
    closed_weeks.add(settings, replace(row, emptied_at=now))
    return records


def _close_shard(
    settings: Settings, week: IsoWeek, shard: int, now: datetime
) -> dict[DeliveryState, int]:
    """Write the record that closes the week in a shard, unless it is there; return its counts."""
    with closing(Ledger(settings, week, shard)) as ledger:
        ledger.fence()
        if closed := ledger_topic.read_closed(settings, week, shard, wait=True):
            return closed.counts
        index = LedgerIndex.fold(ledger_topic.read(settings, week, shard, wait=True))
        sending_to_unknown(index)
        found = index.counts()
        counts = {state: found[state] for state in STATES}
        value = closed_value(counts, now)
        ledger.write([], [ledger_topic.closed_record(settings, week, shard, value)])
        return counts


def _empty_shard(settings: Settings, week: IsoWeek, shard: int) -> int:
    """Delete the week's records of a shard; return how many."""
    with closing(Ledger(settings, week, shard)) as ledger:
        ledger.fence()
        found = ledger_topic.keys(settings, week, shard)
        for start in range(0, len(found), BATCH):
            keys = found[start : start + BATCH]
            ledger.write([], [ledger_topic.tombstone(settings, key, shard, WHY) for key in keys])
        return len(found)
