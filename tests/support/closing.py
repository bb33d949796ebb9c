"""A week that is long ago: the time of that, and weeks that were mailed since.

`python -m tests.support.closing STEP` closes old weeks, and is killed as that step begins.
"""

import logging
import os
import signal
import sys
from datetime import UTC, datetime

from shardpost.settings import Settings, load
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_retention import close_old_weeks, erase_old_audiences
from tests.support.installed import installed
from tests.support.written_weeks import begin, freeze

# More than SHARDPOST_LEDGER_DAYS after 2026-W47.
LATER = datetime(2029, 6, 4, 8, tzinfo=UTC)


def make_old(settings: Settings, week: IsoWeek, clients: list[str]) -> None:
    """Freeze a week as its run did, and later weeks; erase its audience as of `LATER`."""
    last = IsoWeek.last_ended(LATER)
    for one in (week, last.previous, last):
        begin(settings, one, one.end)
        freeze(settings, one, clients, one.end)
    erase_old_audiences(installed(settings), LATER)


class Kill(logging.Handler):
    """Kills this process when the step's name is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == f"step: {sys.argv[1]}":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    logger = logging.getLogger("shardpost.logs")
    logger.setLevel(logging.INFO)
    logger.addHandler(Kill())
    sys.stdout.write(str(close_old_weeks(installed(load()), LATER)))
