"""Weeks that a person paused: runs that mail them end within seconds, and others refuse them.

The table `paused_weeks` says so, through deltalake: no JVM. Rows are only added, and the last of a
week counts. A shard that is being mailed looks there between two groups of mails: what was handed
to the mail server is finished and recorded, and nothing new is begun. So nothing becomes unknown,
and who is open stays open for the run that goes on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost import ownership
from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.delta import table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import select
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.weekly_email import closed_weeks
from shardpost.weekly_email.ledger_guard import RESOLUTION
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import PAUSED_WEEKS, PausedWeek, WeekPausedError

log = logging.getLogger(__name__)

# A shard that is being mailed looks so often whether its week was paused.
WATCH_SECONDS = 2.0


def find(tables: Tables, week: IsoWeek) -> PausedWeek | None:
    """Return how a week was paused; None if it is not."""
    last = _last(tables, week)
    return last if last is not None and last.is_paused else None


def _last(tables: Tables, week: IsoWeek) -> PausedWeek | None:
    rest = f"WHERE week = '{week}' ORDER BY at DESC LIMIT 1"
    return next(iter(select(tables, PAUSED_WEEKS, PausedWeek, rest)), None)


def require_not_paused(tables: Tables, week: IsoWeek) -> None:
    """Refuse a week that is paused."""
    if paused := find(tables, week):
        raise WeekPausedError(paused.explanation)


def pause(
    installation: Installation, week: IsoWeek, who: str, why: str, now: datetime
) -> PausedWeek:
    """Pause a week, and record who did. ShardpostError if it is paused already."""
    closed_weeks.require_open(installation, week, now)
    if paused := find(installation.tables, week):
        raise ShardpostError(f"nothing to pause: {paused.explanation}")
    return _change(installation, PausedWeek(str(week), True, now, who, why), Kind.PAUSED)


def resume(
    installation: Installation, week: IsoWeek, who: str, why: str, now: datetime
) -> PausedWeek:
    """Let runs mail a week again, and record who did. ShardpostError if it is not paused."""
    if find(installation.tables, week) is None:
        raise ShardpostError(f"{week} is not paused: nothing to resume")
    return _change(installation, PausedWeek(str(week), False, now, who, why), Kind.RESUMED)


def _change(installation: Installation, changed: PausedWeek, kind: Kind) -> PausedWeek:
    decisions_topic.record(
        installation.kafka,
        f"{installation.kafka.topic('weekly-emails')}/{changed.week}/pause",
        Decision(changed.week.encode(), kind, changed.who, changed.at, changed.why),
        {},
        may_write=partial(ownership.require, installation),
        done=f"{changed.week} is as it was: run it again",
    )

    def newest() -> PausedWeek:
        """Return the row as the newest: of two machines, one may have a clock that is behind."""
        last = _last(installation.tables, IsoWeek.parse(changed.week))
        after = last.at + RESOLUTION if last else changed.at
        return replace(changed, at=max(changed.at, after))

    table_log.append(installation.tables, PAUSED_WEEKS, newest)
    return changed


@dataclass
class PauseWatch:
    """Tells a shard that is being mailed whether its week was paused; looks every few seconds.

    `clock` gives monotonic seconds. Where the tables cannot be read, it goes on: nobody can have
    written there either, and who asks for subscriptions says what is wrong.
    """

    tables: Tables
    week: IsoWeek
    clock: Callable[[], float]
    _looked_at: float | None = field(default=None, init=False)
    _found: str | None = field(default=None, init=False)

    def __call__(self) -> str | None:
        """Return why to stop, or None."""
        now = self.clock()
        is_due = self._looked_at is None or now - self._looked_at >= WATCH_SECONDS
        if self._found is None and is_due:
            self._looked_at = now
            self._found = self._look()
        return self._found

    def _look(self) -> str | None:
        try:
            paused = find(self.tables, self.week)
        except (ShardpostError, OSError, DeltaError, ArrowException) as error:
            log.warning("%s: cannot read whether it was paused: %s", self.week, error)
            return None
        return paused.explanation if paused else None
