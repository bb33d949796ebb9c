"""A dispatch that stops itself (SIGSTOP) as a named step begins: `pausing_dispatch.py STEP`.

The dispatch is the real command; only a log handler is added, which the tests wait for and kill at.
"""

import logging
import os
import signal
import sys

from shardpost.cli import run


class Pause(logging.Handler):
    """Stops this process when the step's name is logged, once."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._line = f"step: {step}"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self._line:
            self._line = ""
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    logger = logging.getLogger("shardpost.dispatching.partition")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Pause(sys.argv[1]))
    sys.exit(run(["runs", "dispatch"]))
