"""How every job starts and ends.

Arguments in, one JSON result out, one line for a known failure.
"""

import json
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyarrow.lib import ArrowException
from pyspark.errors import PySparkException

from shardpost import logs
from shardpost.errors import COULD_NOT, ShardpostError
from shardpost.settings import Settings, load
from shardpost.spark.parent_process import end_with_parent

# What a job leaves: its exit code (shardpost.errors) and a JSON document.
Outcome = tuple[int, dict[str, Any]]


def parser(description: str | None) -> ArgumentParser:
    """Return a parser of a job's arguments, with the one that all jobs have."""
    made = ArgumentParser(description=description)
    made.add_argument("--result", type=Path, help="where the JSON result is written")
    return made


def run(body: Callable[[Settings], Outcome], *, result: Path | None) -> NoReturn:
    """Run a job's body and exit with its code; its JSON document goes to that path."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # with it the JVM ends too, and cannot be asked
    end_with_parent()  # without its JVM it can do nothing but what it does before Spark's part
    logs.configure()
    try:
        code, document = body(load())
    except ShardpostError as error:
        _fail(str(error), error.exit_code)
    except (PySparkException, Py4JError) as error:
        _fail(f"Spark could not do it: {_first_line(error)}", COULD_NOT)
    except (OSError, DeltaError, ArrowException) as error:
        _fail(f"the tables could not be read or written: {_first_line(error)}", COULD_NOT)
    if result:
        _write_whole(result, json.dumps(document))
    sys.exit(code)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _fail(line: str, code: int) -> NoReturn:
    sys.stderr.write(f"shardpost: {line}\n")
    sys.exit(code)


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(text)
    beside.replace(path)
