"""One look at everything: kept as history, and told to people where it needs them.

What is told is put on record after at least one channel took it. So a run that is killed in between
tells it once more, and nothing is forgotten.
"""

import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shardpost.alerts import firing
from shardpost.alerts.channels import Delivery, tell
from shardpost.alerts.model.alert import Alert, message_of
from shardpost.alerts.model.alerting import advance
from shardpost.delta.query import table_errors
from shardpost.locks import exclusive
from shardpost.logs import step
from shardpost.measurements import history
from shardpost.settings import Settings
from shardpost.watch.looking import SOURCES, look
from shardpost.watch.model.found import Found, Source
from shardpost.watch.model.growth import disk_full

LOCK = "watch"
RATE_OVER = timedelta(days=7)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watched:
    """What one watch found and told, and what became of the message in each channel."""

    found: Found
    alerts: list[Alert]
    deliveries: list[Delivery]

    @property
    def is_told(self) -> bool:
        """Whether a channel took the message; without any, alerts.log is enough."""
        return not self.deliveries or any(one.problem is None for one in self.deliveries)


def watch(
    settings: Settings, now: datetime, sources: tuple[Source[Settings], ...] = SOURCES
) -> Watched:
    """Look once, add to the history, and tell people what changed.

    LockedError beside another watch; ShardpostError if the tables of the watch cannot be written.
    """
    with exclusive(settings, LOCK, "the watch"), table_errors():
        found = look(settings, now, sources)
        _add_growth(found, settings, now)
        step("look")
        history.add(settings, found.measures, now)
        step("history")
        return _told(settings, found, now)


def _add_growth(found: Found, settings: Settings, now: datetime) -> None:
    free = [one.value for one in found.measures if one.name == "disk_free_bytes"]
    if not free:
        return
    before = history.values(settings, "disk_free_bytes", now - RATE_OVER, now)
    if condition := disk_full(before, now, free[0]):
        found.conditions.append(replace(condition, source="sizes"))


def _told(settings: Settings, found: Found, now: datetime) -> Watched:
    known = firing.list_all(settings)
    result = advance(known, found.conditions, now, found.unmeasured)
    deliveries: list[Delivery] = []
    if result.alerts:
        deliveries = tell(settings, message_of(result.alerts, settings.runbook))
        step("told")
    watched = Watched(found, result.alerts, deliveries)
    after = result.if_told if watched.is_told else result.if_not
    if after != known:
        firing.replace_all(settings, after, now)
    return watched
