"""Stops a process of a job (SIGSTOP) as a named step begins, in the driver or in a worker.

Python imports it at its start where this folder is on PYTHONPATH; PAUSE_AT names the step, and
PAUSE_AT_TIME the how-maniest time that a process comes to it. The job is the real one: only a log
handler is added, which the tests wait for and kill at. The first process that comes there stops,
and leaves the file PAUSED.
"""

import logging
import os
import signal
from contextlib import suppress


class Pause(logging.Handler):
    """Stops this process when the step's name is logged so often, if no other has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._times = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._times += record.getMessage() == f"step: {os.environ['PAUSE_AT']}"
        if self._times == int(os.environ["PAUSE_AT_TIME"]):
            with suppress(FileExistsError):
                os.close(os.open(os.environ["PAUSED"], os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGSTOP)


pause = Pause()
logging.getLogger("shardpost.logs").addHandler(pause)
