"""Stops a process of a job (SIGSTOP) as a named step begins, in the driver or in a worker.

Python imports it at its start where this folder is on PYTHONPATH; PAUSE_AT names the step. The job
is the real one: only a log handler is added, which the tests wait for and kill at.
"""

import logging
import os
import signal


class Pause(logging.Handler):
    """Stops this process when the step's name is logged, once."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._line = f"step: {step}"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self._line:
            self._line = ""
            os.kill(os.getpid(), signal.SIGSTOP)


for name in ("spark_jobs", "shardpost"):
    logging.getLogger(name).addHandler(Pause(os.environ["PAUSE_AT"]))
