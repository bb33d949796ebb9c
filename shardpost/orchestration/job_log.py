"""The log of a Spark job's task: the job's own lines stand out, Spark's are in closed groups."""

import logging
import re
from collections import deque
from collections.abc import MutableMapping
from typing import Any

from shardpost.orchestration.log_groups import close_group, open_group

log = logging.getLogger(__name__)

# As shardpost.logs writes them.
OWN = re.compile(r"[-0-9]{10} [:0-9]{8},[0-9]{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (?s:(.*))")
ERROR = "shardpost: "  # begins the line of an error that ends a job
SPARK = re.compile(
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
        if own := OWN.fullmatch(text):
            level, text = logging.getLevelNamesMapping()[own[1]], own[2]
        elif text.startswith(ERROR):
            level, self._error = logging.ERROR, text.removeprefix(ERROR)
        is_spark = not own and SPARK.match(text) is not None
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
