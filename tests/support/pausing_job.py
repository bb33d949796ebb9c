"""A job that stops itself (SIGSTOP) as a named step begins.

`spark-submit pausing_job.py STEP JOB ARGS…`.

The job is the real one; only a log handler is added, which the tests wait for and kill at. With
the variable FOLD_RUNS layers are folded after so many runs.
"""

import logging
import os
import runpy
import signal
import sys
import threading


class Pause(logging.Handler):
    """Stops this process when the step's name is logged, once."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._line = f"step: {step}"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self._line:
            self._line = ""
            # To this very thread: another would stop the process, and this one a moment later.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


if __name__ == "__main__":
    if runs := os.environ.get("FOLD_RUNS"):
        from shardpost.holders import folding
        from shardpost.holders.model.view_tables import FoldingRule

        folding.FOLDING = FoldingRule(runs=int(runs))
    logger = logging.getLogger("shardpost.logs")
    logger.addHandler(Pause(sys.argv[1]))
    sys.argv = [sys.argv[2], *sys.argv[3:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
