"""A Spark job: its specification, its request as a document, and its process.

DAGs import this module: it imports nothing heavy.

Output is passed on to standard error, but for what each JVM says of itself. The folder of the
temporary files is removed in the end, however the job ends: by the process that creates it or, if
that one was killed, by the next job on this machine, once no process uses it any more.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import IO, Any, TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from shardpost import logs
from shardpost.errors import ShardpostError, UsageError, WrongArgumentError
from shardpost.installation import Installation

# The outcome of a job: its exit code (shardpost.errors) and its JSON document.
JobResult = tuple[int, dict[str, Any]]
# The document of a request that is as it is by default.
BY_DEFAULT = "{}"
T = TypeVar("T")


def document_of(request: object, *, with_now: bool = True) -> str:
    """Return a request, a dataclass, as one JSON document without what is as by default.

    Without its field `now`, the job takes the time at which it starts. UsageError for a text that
    is no Unicode.
    """
    try:
        made = TypeAdapter(type(request)).dump_json(
            request, exclude=None if with_now else {"now"}, exclude_defaults=True
        )
    except PydanticSerializationError:
        raise UsageError(f"expected text in UTF-8, found {request!r}") from None
    return made.decode()


def properties(name: str) -> dict[str, str]:
    """Return what a file of this folder has of Spark's configuration, in Spark's own form."""
    lines = files(__package__).joinpath(name).read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


# Of the result of a run that stays.
FOLLOWING = "following"
# Spark's configuration has it in the driver of such a run.
STAYS = "spark.shardpost.stays"


def request_of(kind: type[T], document: str) -> T:
    """Return the request that `document_of` wrote; UsageError, naming all fields that are wrong."""
    try:
        return TypeAdapter(kind).validate_json(document, extra="forbid")
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise WrongArgumentError(f"request {document}: {'; '.join(wrong)}") from None


# From this many records on, the JVM's optimising compiler pays for itself.
LONG_RUN_RECORDS = 500_000


@dataclass(frozen=True)
class JobSpec:
    """One job: the stem of its file in `spark_jobs/`, which is its DAG's id too.

    `unread_records` counts what it would read now; with `has_own_class_archive` it loads half as
    many classes again as other jobs do (jars.py). `more_jars` are files of `ivy/` that it needs
    now, beside Spark's own. `without_spark` does the job in the calling process, by its request,
    where that needs no Spark: starting Spark takes seconds. Else it changes nothing and returns
    None. `stays` tells of a request whether its run stays: it ends by itself when it is asked to.
    """

    name: str
    # Not in the repr, whose address of a function would make each parsing a new version of a DAG.
    unread_records: Callable[[Installation], int] = field(default=lambda _: 0, repr=False)
    has_own_class_archive: bool = False
    more_jars: Callable[[Installation], Sequence[str]] = field(default=lambda _: (), repr=False)
    without_spark: Callable[[Installation, str], JobResult | None] = field(
        default=lambda *_: None, repr=False
    )
    stays: Callable[[str], bool] = field(default=lambda _: False, repr=False)

    def is_long(self, installation: Installation) -> bool:
        """Tell whether it would read LONG_RUN_RECORDS or more; False where that cannot be known."""
        try:
            return self.unread_records(installation) >= LONG_RUN_RECORDS
        except ShardpostError:
            return False  # the job itself reports the error

    def result_without_spark(self, installation: Installation, request: str) -> JobResult | None:
        """Do it in this process if it needs no Spark; ShardpostError for errors of tables, too."""
        from shardpost.delta.query import table_errors
        from shardpost.locks import refused_runs  # heavy: DAGs import this module

        with refused_runs.noting(installation.files, self.name), table_errors():
            result = self.without_spark(installation, request)
        if result:
            refused_runs.note_result(installation.files, self.name, *result)
        return result


PR_SET_PDEATHSIG = 1  # linux/prctl.h


def terminate_with_parent() -> None:
    """Have the kernel send this process a SIGTERM when its parent ends (Linux, prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


PREFIX = "shardpost-"
_LOCK = "in-use"


@contextmanager
def job_folder() -> Iterator[Path]:
    """Give a new folder; a process uses it if its `TMPDIR` names it."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    # It gets the name that other jobs look for only when it is locked.
    hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    with (hidden / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = hidden.rename(hidden.with_name(hidden.name[1:]))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    folders = [path for path in parent.glob(f"{PREFIX}*") if os.access(path / _LOCK, os.W_OK)]
    if not folders:
        return
    in_use = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            in_use.add(process.environ().get("TMPDIR", ""))
    for folder in folders:
        if str(folder) not in in_use:
            with suppress(OSError), (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


# Exactly these lines are left out. Spark's launcher asks for that module, and the JVM says so at
# each start; no option silences it. The second comes before our own logging is configured.
NOISE = frozenset(
    {
        b"WARNING: Using incubator modules: jdk.incubator.vector",
        b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    }
)
# A job has ended; a process that it left may still hold its output open.
LAST_LINES_SECONDS = 5.0


# A job that stays is asked to stop by this file in its folder, and has so long to come to the end
# of its turn. Wherever it is killed after that, nothing is lost.
_STOP = "stop"
STOP_SECONDS = 10.0


def ask_to_stop(folder: Path) -> None:
    """Ask the job that uses this folder to stop."""
    (folder / _STOP).touch()


def is_asked_to_stop() -> bool:
    """Tell whether this job, which has a folder of `job_folder` as its own, is to stop."""
    folder = Path(tempfile.gettempdir())
    return folder.name.startswith(PREFIX) and (folder / _STOP).exists()


def run_job(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, stays: bool = False
) -> int:
    """Run a command to its end; return its exit code.

    All its output goes to standard error, line by line, but for NOISE. It has a process group of
    its own, which Ctrl-C in a terminal does not reach: if this process is interrupted, it kills
    the group, before any part of it can complain about the others. One that `stays`, in its folder
    `cwd`, is asked to stop first; a SIGTERM interrupts this process then, too.
    """
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=terminate_with_parent,
        process_group=0,
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    reader = Thread(target=pass_on, args=(process.stdout, sys.stderr.fileno()), daemon=True)
    reader.start()
    try:
        code = _wait_or_stop(process, cwd) if stays else process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    reader.join(LAST_LINES_SECONDS)
    return code


def _wait_or_stop(process: "subprocess.Popen[bytes]", folder: Path) -> int:
    """Return the exit code of a job; if this process is interrupted, ask the job to stop first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return process.wait()
    except KeyboardInterrupt:
        ask_to_stop(folder)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)


def pass_on(output: IO[bytes], to: int) -> None:
    """Copy lines to a file descriptor, but for NOISE; read to the end even if nobody takes them."""
    is_open = True
    with output:
        for line in output:
            if is_open and line.rstrip(b"\r\n") not in NOISE:
                is_open = _write(to, line)


def _write(to: int, line: bytes) -> bool:
    """Write all of a line; False where the reader has gone."""
    try:
        with logs.line_interrupted(line):
            while line:
                line = line[os.write(to, line) :]
    except OSError:
        return False
    return True
