"""Retention of old weeks: erase their audience, remove their ledger records.

An audience has names, addresses and holdings. It is erased in these steps; after a crash the next
run continues:

1. the week's row is marked as erased: no run reads, freezes or mails the week any more;
2. its table is deleted, together with leftovers of killed freezes, which no row names.

In a ledger without records, every client looks open. So each shard first gets a record that closes
the week, written after fencing like a sender: every later sender reads it after its own fencing and
refuses. Only when all shards have it, the records are removed. After a crash the next run continues
these steps:

1. the record that closes it, in each shard, with the counts as of then;
2. its row in `closed_weeks`, for readers, and in case the ledger is lost;
3. tombstones for its records;
4. a second row, which records their removal.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from shardpost.delta import table_log
from shardpost.delta.query import table_errors
from shardpost.delta.stored_files import data_files
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.locks.locks import LockedError, exclusive, postponing
from shardpost.logs import step
from shardpost.weekly_email import week_state
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, closed_value
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek, certain_time
from shardpost.weekly_email.model.week_tables import CLOSED_WEEKS, ClosedWeek, audience_table
from shardpost.weekly_email.week_state import WeekState, compacted_ledger
from shardpost.wording import counted


@dataclass
class OldWeeks:
    """What was done with old weeks, or with `dry_run` would be.

    `removed` counts what they had: clients, files and bytes of audiences, records of the ledger.
    `postponed` has the reason for each old week that had to be skipped.
    """

    of: str
    done: str
    dry_run: bool
    removed: Counter[str] = field(default_factory=Counter)
    weeks: list[str] = field(default_factory=list)
    postponed: dict[str, str] = field(default_factory=dict)
    warning: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        names = ("dry_run", "weeks", "postponed", "warning")
        return {name: getattr(self, name) for name in names} | self.removed

    def lines(self) -> list[str]:
        """Return it in words."""
        weeks, named = counted(len(self.weeks), "week"), ", ".join(self.weeks)
        verb, gone = self.done, "removed"
        if self.dry_run:
            verb, gone = f"would be {verb}", "to remove"
        had = ", ".join(counted(count, name[:-1]) for name, count in self.removed.items())
        lines = [f"{self.of}: {weeks} {verb}{named and f': {named}'}; {had} {gone}"]
        lines += [f"{week}: not {self.done} yet: {why}" for week, why in self.postponed.items()]
        return [*lines, *([self.warning] if self.warning else [])]


def erase_old_audiences(
    installation: Installation, now: datetime, *, dry_run: bool = False
) -> OldWeeks:
    """Erase the audiences older than SHARDPOST_AUDIENCE_DAYS, except of weeks being mailed.

    Raises LockedError beside a freeze.
    """
    result, settings = OldWeeks("audiences", "erased", dry_run), installation.settings
    # An audience is useless without its ledger.
    days = min(settings.audience_days, settings.ledger_days)
    what = "erasing old audiences"
    files = installation.files
    with table_errors(), exclusive(files, "freeze", what, wait=files.lock_wait):
        table = FrozenWeeks(installation.tables)
        weeks = table.list_all()
        ends = {week.week: IsoWeek.parse(week.week).end for week in weeks}
        at, result.warning = certain_time(now, ends.values())
        # An interrupted run may have started with the marked weeks.
        old = [
            week
            for week in weeks
            if week.audience_erased_at is not None
            or at - max(ends[week.week], week.frozen_at) > timedelta(days=days)
        ]
        gone = [week for week in old if dry_run or _mark(installation, week, now, result)]
        erased = [week for week in gone if week.audience_erased_at is None]
        result.weeks = sorted(week.week for week in erased)
        # And leftovers of killed freezes, which belong to no week.
        folders = {*table.unnamed(), *(week.audience for week in gone)}
        stored = [
            file
            for folder in folders
            for file in data_files(installation.tables, audience_table(folder), lambda _: False)
        ]
        clients, size = sum(week.recipients for week in erased), sum(file.size for file in stored)
        result.removed = Counter(clients=clients, files=len(stored), bytes=size)
        if folders and not dry_run:
            table.remove_unnamed()
    return result


def _mark(installation: Installation, week: FrozenWeek, now: datetime, result: OldWeeks) -> bool:
    """Mark the week's audience as erased; return False while a run mails the week."""
    if week.audience_erased_at is not None:
        return True
    iso_week = IsoWeek.parse(week.week)
    try:
        with WeekState(installation, iso_week).locked(range(week.shards)):
            step(f"mark {week.week}")
            FrozenWeeks(installation.tables).mark_erased(iso_week, now)
    except LockedError as error:
        result.postponed[week.week] = error.holder
        return False
    return True


BATCH = 1000  # tombstones in one transaction
WHY = "the week is closed"


def close_old_weeks(
    installation: Installation, now: datetime, *, dry_run: bool = False
) -> OldWeeks:
    """Close the weeks whose last run was more than SHARDPOST_LEDGER_DAYS ago.

    A week is closed after its audience was erased; a week being mailed is postponed.
    """
    result = OldWeeks("ledger", "closed", dry_run, Counter(records=0))
    days = installation.settings.ledger_days
    with table_errors():
        # For each week ever in the ledger: when it was frozen and mailed.
        used: dict[IsoWeek, list[datetime]] = defaultdict(list)
        for frozen in FrozenWeeks(installation.tables).list_all():
            used[IsoWeek.parse(frozen.week)].append(frozen.frozen_at)
        for mark in week_state.list_marks(installation.tables):
            used[IsoWeek.parse(mark.week)].append(mark.marked_at)
        at, result.warning = certain_time(now, (week.end for week in used))
        rows = week_state.list_closed(installation.tables)
        closed = {week for week, row in rows.items() if row.emptied_at}
        for week, times in sorted(used.items()):
            if str(week) not in closed and at - max(week.end, *times) > timedelta(days=days):
                _try_to_close(installation, week, now, result)
    return result


def _try_to_close(
    installation: Installation, week: IsoWeek, now: datetime, result: OldWeeks
) -> None:
    with postponing(week, result.postponed):
        # Even if the ledger lost records: a closed week is never mailed again.
        shards = range(compacted_ledger(installation.kafka).partitions)
        if result.dry_run:  # its audience is erased first
            ledgers = (ShardLedger(installation.kafka, week, shard) for shard in shards)
            result.removed["records"] += sum(len(ledger.keys()) for ledger in ledgers)
        else:
            with WeekState(installation, week).locked(shards):
                # It may have been frozen meanwhile.
                frozen = FrozenWeeks(installation.tables).find(week)
                if frozen and frozen.audience_erased_at is None:
                    raise ShardpostError(f"its audience is not erased yet, on {now:%Y-%m-%d}")
                result.removed["records"] += _close(installation, week, shards, now)
        result.weeks.append(str(week))


def _close(installation: Installation, week: IsoWeek, shards: Sequence[int], now: datetime) -> int:
    """Return how many records were removed from the ledger."""
    counts = []
    for shard in shards:
        step(f"close {week} shard {shard}")
        counts.append(_close_shard(installation, week, shard, now))
    step(f"record {week}")
    row = week_state.list_closed(installation.tables).get(str(week))
    if row is None:
        row = ClosedWeek.of(week, now, counts)
        table_log.append(installation.tables, CLOSED_WEEKS, lambda: row)
    records = 0
    for shard in shards:
        step(f"empty {week} shard {shard}")
        with closing(Ledger(installation, week, shard)) as ledger:
            ledger.fence()
            keys = ledger.keys()
            for start in range(0, len(keys), BATCH):
                batch = keys[start : start + BATCH]
                ledger.write([], [ledger.tombstone(key, WHY) for key in batch])
        records += len(keys)
    step(f"finish {week}")
    emptied = replace(row, emptied_at=now)
    table_log.append(installation.tables, CLOSED_WEEKS, lambda: emptied)
    return records


def _close_shard(
    installation: Installation, week: IsoWeek, shard: int, now: datetime
) -> dict[DeliveryState, int]:
    """Write the record that closes the week in a shard, unless it exists; return its counts."""
    with closing(Ledger(installation, week, shard)) as ledger:
        ledger.fence()
        if closed := ledger.closed(wait=True):
            return closed.counts
        index = LedgerIndex.fold(ledger.entries(wait=True))
        sending_to_unknown(index)
        counts = index.counts()
        ledger.close_week(closed_value(counts, now))
        return counts
