"""The output of a job: passed on to standard error, but for what each JVM says of itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

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


def run_job(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, preexec: Callable[[], None]
) -> int:
    """Run a command to its end; return its exit code.

    All its output goes to standard error, line by line, but for NOISE. It has a process group of
    its own, which Ctrl-C in a terminal does not reach: if this process is interrupted, it kills
    the group, before any part of it can complain about the others.
    """
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=preexec,
        process_group=0,
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    reader = Thread(target=pass_on, args=(process.stdout, sys.stderr.fileno()), daemon=True)
    reader.start()
    try:
        code = process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    reader.join(LAST_LINES_SECONDS)
    return code


def pass_on(output: IO[bytes], to: int) -> None:
    """Copy lines to a file descriptor, but for NOISE; read to the end even if nobody takes them.

    The output is closed then.
    """
    is_open = True
    with output:
        for line in output:
            if is_open and line.rstrip(b"\r\n") not in NOISE:
                is_open = _write(to, line)


def _write(to: int, line: bytes) -> bool:
    """Write all of a line; False where the reader has gone."""
    try:
        while line:
            line = line[os.write(to, line) :]
    except OSError:
        return False
    return True
