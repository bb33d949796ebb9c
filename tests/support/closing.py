"""A week that is long ago: the time of that, and weeks that were mailed since."""

from datetime import UTC, datetime

from shardpost.settings import Settings
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_retention import erase_old_audiences
from tests.support.written_weeks import begin, freeze

# More than SHARDPOST_LEDGER_DAYS after 2026-W47.
LATER = datetime(2029, 6, 4, 8, tzinfo=UTC)


def make_old(settings: Settings, week: IsoWeek, clients: list[str]) -> None:
    """Freeze a week as its run did, and later weeks; erase its audience as of `LATER`."""
    last = IsoWeek.last_ended(LATER)
    for one in (week, last.previous, last):
        begin(settings, one, one.end)
        freeze(settings, one, clients, one.end)
    erase_old_audiences(settings, LATER)
