"""The command `shardpost` in this process, its jobs in the Spark session of the tests.

The command and the job are the real ones, from their arguments to their exit codes; only no process
and no JVM is started for each of them.
"""

import contextlib
import io
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from shardpost import cli
from shardpost.checkout import SPARK_JOBS
from shardpost.settings import loading
from shardpost.spark import driver, submit
from tests.support.command_line import CommandLine


class CommandsHere(CommandLine):
    """As `CommandLine`, in this process; what is logged is not in the output."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict("os.environ", self._environ, clear=True),
            pytest.MonkeyPatch.context() as replace,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            replace.setattr(submit, "run_job", _run_here)
            replace.setattr(loading, "_of_this_process", loading._of_this_process.__wrapped__)
            code = cli.run([*arguments])
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def _run_here(command: Sequence[str], *, env: Mapping[str, str], **_how: Any) -> int:
    """Run the job's file with the arguments of spark-submit's command; return its exit code."""
    [at] = [at for at, part in enumerate(command) if part.startswith(f"{SPARK_JOBS}/")]
    on_interrupt = signal.getsignal(signal.SIGINT)
    with (
        patch.dict("os.environ", env, clear=True),
        patch.object(sys, "argv", list(command[at:])),
        patch.object(driver, "terminate_with_parent", lambda: None),
    ):
        try:
            runpy.run_path(command[at], run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            signal.signal(signal.SIGINT, on_interrupt)
    raise AssertionError(f"{command[at]} did not exit")
