"""How every job starts and ends: arguments in, one JSON result out, one line for a known error."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shardpost import logs
from shardpost.delta.table_errors import table_errors
from shardpost.errors import COULD_NOT, ShardpostError
from shardpost.printable import harmless
from shardpost.settings import Settings, load
from shardpost.spark.job_spec import JobResult
from shardpost.spark.parent_process import terminate_with_parent


def run(body: Callable[[Settings], JobResult], *, result: Path | None) -> NoReturn:
    """Run a job's body, write its JSON document to `result`, and exit with its code.

    A known error becomes one line on standard error, and its exit code.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the JVM too: it cannot be asked
    terminate_with_parent()  # the JVM: without it the driver can do nothing
    logs.configure()
    try:
        with table_errors():
            code, document = body(load())
    except ShardpostError as error:
        _fail(str(error), error.exit_code)
    except (PySparkException, Py4JError) as error:
        _fail(f"Spark failed: {_first_line(error)}", COULD_NOT)
    if result:
        _write_atomically(result, json.dumps(document))
    sys.exit(code)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _fail(line: str, code: int) -> NoReturn:
    sys.stderr.write(f"shardpost: {harmless(line)}\n")
    sys.exit(code)


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)
