"""The log of a task: groups of lines, and a Spark job's own lines, which stand out.

Airflow's UI shows the lines between two marks as one line, closed; an end without a beginning
is nothing to it. Spark's lines are in such groups. It imports nothing of Airflow.
"""

import logging
import re
from collections import deque
from collections.abc import MutableMapping
from typing import Any

# Open at most when a callback runs: one of ours, or `Pre Execute`, and in it `Post Execute`.
MOST_OPEN = 2


def open_group(log: logging.Logger, name: str) -> None:
    """Begin a group; the lines that follow are in it."""
    log.info("::group::%s", name)


def close_group(log: logging.Logger) -> None:
    """End the innermost group."""
    log.info("::endgroup::")


def close_all_groups(log: logging.Logger) -> None:
    """End every group that can be open when Airflow calls a callback of a task."""
    for _ in range(MOST_OPEN):
        close_group(log)


log = logging.getLogger(__name__)

# As shardpost.logs writes them.
OWN_LINE = re.compile(
    r"[-0-9]{10} [:0-9]{8},[0-9]{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (?s:(.*))"
)
ERROR_BEGINS = "shardpost: "  # begins the line of an error that ends a job
SPARK_LINE = re.compile(
    r"[-/0-9]{8,10} [:,0-9]{8,12} (TRACE|DEBUG|INFO|WARN|ERROR|FATAL|JVM) "
    r"|Spark-Submit cmd: |WARNING: |:: |Setting default log level|To adjust logging level"
    r"|Using Spark's default|at [\w.$/]+\(|Caused by: |\.\.\. [0-9]+ more"
)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """Takes the lines that the provider's hook logs, and logs each as what it is.

    What neither the job nor Spark is known to write, such as the lines of a dry run or a traceback
    of Python, stays visible.
    """

    def __init__(self) -> None:
        super().__init__(log)
        self._is_in_group = False
        self._error: str | None = None
        self._last = deque[str](maxlen=5)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, Any]:
        """Return the line as it is."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        """Log one line, in a group if it is Spark's."""
        text = str(msg) % args if args else str(msg)
        if own := OWN_LINE.fullmatch(text):
            level, text = logging.getLevelNamesMapping()[own[1]], own[2]
        elif text.startswith(ERROR_BEGINS):
            level, self._error = logging.ERROR, text.removeprefix(ERROR_BEGINS)
        is_spark = not own and SPARK_LINE.match(text) is not None
        self._group(is_spark=is_spark)
        if not is_spark and text.strip():
            self._last.append(text)
        self.logger.log(level, "%s", text)

    @property
    def said(self) -> str:
        """The job's own error, else the last lines that are not Spark's."""
        return self._error or " | ".join(self._last)

    def close(self) -> None:
        """End the group of the last lines."""
        self._group(is_spark=False)

    def _group(self, *, is_spark: bool) -> None:
        if is_spark and not self._is_in_group:
            open_group(self.logger, "Spark")
        elif not is_spark and self._is_in_group:
            close_group(self.logger)
        self._is_in_group = is_spark
