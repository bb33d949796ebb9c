"""A process that closes old weeks and kills itself: `python -m tests.support.closing_process STEP`.

Its settings are those of the environment. It is killed (SIGKILL) as the named step begins.
"""

import logging
import os
import signal
import sys

from shardpost.settings import load
from shardpost.weekly_email.week_retention import close_old_weeks
from tests.support.closing import LATER


class Kill(logging.Handler):
    """Kills this process when the step's name is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == f"step: {sys.argv[1]}":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    logger = logging.getLogger("shardpost.logs")
    logger.setLevel(logging.INFO)
    logger.addHandler(Kill())
    sys.stdout.write(str(close_old_weeks(load(), LATER)))
