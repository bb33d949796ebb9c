"""Old audiences are erased: names, addresses and holdings of weeks that were mailed long ago.

The steps, each of which may be the last before a crash; the next run goes on:

1. the week's row says that its audience is erased: from then on nobody reads it, and the week can
   neither be frozen nor mailed again;
2. a version of `audiences` without its files;
3. the files leave the disk, with those that crashed freezes of the week left;
4. the log of `audiences` loses the bounds of names and addresses that older releases wrote.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from shardpost.delta import log_statistics, table_log
from shardpost.delta.query import exists
from shardpost.delta.table_errors import table_errors
from shardpost.errors import ShardpostError
from shardpost.locks import LockedError, exclusive
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.weekly_email import audience_files, frozen_weeks
from shardpost.weekly_email.model.ages import AgeClock
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.tables import AUDIENCE_STATISTICS, AUDIENCES
from shardpost.weekly_email.shard_locks import locked


@dataclass
class ErasedAudiences:
    """What was erased, or with `dry_run` would be: weeks, their clients, files and their bytes.

    `postponed` says of each week that is old, and could not be erased, why.
    """

    dry_run: bool
    weeks: list[str] = field(default_factory=list)
    clients: int = 0
    files: int = 0
    bytes: int = 0
    log_files: int = 0
    postponed: dict[str, str] = field(default_factory=dict)
    warning: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return it in words."""
        verb = "would be erased" if self.dry_run else "erased"
        named = f": {', '.join(self.weeks)}" if self.weeks else ""
        lines = [
            f"audiences {verb}: {len(self.weeks)} weeks{named}; {self.clients} clients,"
            f" {self.files} files, {self.bytes} bytes"
        ]
        if self.log_files:
            lines.append(
                f"audiences: {self.log_files} files of the log without names and addresses"
            )
        lines += [f"{week}: not erased now: {why}" for week, why in self.postponed.items()]
        return [*lines, *([self.warning] if self.warning else [])]


def erase_old(settings: Settings, now: datetime, *, dry_run: bool = False) -> ErasedAudiences:
    """Erase the audiences that are older than SHARDPOST_AUDIENCE_DAYS.

    Of a week that is being mailed none is erased. LockedError beside a freeze.
    """
    result = ErasedAudiences(dry_run)
    if not exists(settings, AUDIENCES):
        return result
    what = "erasing old audiences"
    with table_errors(), exclusive(settings, "freeze", what, wait=settings.lock_wait):
        weeks = frozen_weeks.list_all(settings)
        clock = AgeClock.of(now, (IsoWeek.parse(one.week).end for one in weeks))
        result.warning = clock.warning
        old = [one for one in weeks if _is_old(settings, clock, one)]
        found = [one for one in old if dry_run or _mark(settings, one, now, result)]
        found_weeks = {one.week for one in found}
        result.weeks = sorted(one.week for one in found if one.audience_erased_at is None)
        result.clients = sum(one.recipients for one in found if one.audience_erased_at is None)
        gone = found_weeks | _never_frozen(settings, clock, weeks)
        _remove(settings, gone, result)
    return result


def audience_days(settings: Settings) -> int:
    """Return after how many days an audience is erased: it is of no use without its ledger."""
    return min(settings.audience_days, settings.ledger_days)


def _is_old(settings: Settings, clock: AgeClock, week: FrozenWeek) -> bool:
    """Tell whether a week's audience is to be erased, or an interrupted run began to."""
    end = IsoWeek.parse(week.week).end
    is_old = clock.is_older(audience_days(settings), end, week.frozen_at)
    return week.audience_erased_at is not None or is_old


def _never_frozen(settings: Settings, clock: AgeClock, weeks: Collection[FrozenWeek]) -> set[str]:
    """Return the old weeks of which a freeze left files, and that nobody froze since."""
    frozen = {one.week for one in weeks}
    left = {folder.week for folder in audience_files.folders(settings)} - frozen
    found = set()
    for week in left:
        with suppress(ShardpostError):  # a folder that is named for no week is not ours
            if clock.is_older(audience_days(settings), IsoWeek.parse(week).end):
                found.add(week)
    return found


def _mark(settings: Settings, week: FrozenWeek, now: datetime, result: ErasedAudiences) -> bool:
    """Write into the week's row that its audience is erased; False while a run mails the week."""
    if week.audience_erased_at is not None:
        return True
    iso_week = IsoWeek.parse(week.week)
    try:
        with locked(settings, iso_week, range(week.shards)):
            step(f"mark {week.week}")
            frozen_weeks.mark_erased(settings, iso_week, now)
    except LockedError as error:
        result.postponed[week.week] = error.holder
        return False
    return True


def _remove(settings: Settings, weeks: Collection[str], result: ErasedAudiences) -> None:
    """Remove these weeks from the table, its files from the disk, and bounds from its log."""
    folders = [one for one in audience_files.folders(settings) if one.week in weeks]
    result.files = sum(folder.files for folder in folders)
    result.bytes = sum(folder.bytes for folder in folders)
    if result.dry_run:
        return
    step("commit")
    version = frozen_weeks.audience_version(settings)
    names = table_log.sizes(settings, AUDIENCES, version)
    removed = [name for name in names if audience_files.week_of(name) in weeks]
    table_log.commit(settings, AUDIENCES, version, (), removed)
    step("remove files")
    for folder in folders:
        audience_files.remove(settings, folder)
    step("reduce log")
    result.log_files = log_statistics.reduce_log(settings, AUDIENCES, AUDIENCE_STATISTICS)
    step("erased")
