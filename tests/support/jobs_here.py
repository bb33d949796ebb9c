"""Jobs that commands submit, run in the Spark session of the tests instead of a process each."""

import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardpost.checkout import SPARK_JOBS
from shardpost.spark import driver, submit
from tests.support.command_line import CommandLineHere


@contextmanager
def jobs_here() -> Iterator[None]:
    """Let what is submitted run here: the file of the job, its arguments, its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submit, "run_job", _run)
        patch.setattr(driver, "terminate_with_parent", lambda: None)
        patch.setattr(signal, "signal", lambda *_: None)  # Ctrl-C stays with the tests
        yield


def _run(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, stays: bool) -> int:
    del env, cwd
    assert not stays, "a job that stays needs a process of its own"
    at = next(n for n, part in enumerate(command) if Path(part).parent == SPARK_JOBS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*command[at:]])
        try:
            runpy.run_path(command[at], run_name="__main__")
        except SystemExit as ended:
            return int(ended.code or 0)
    raise AssertionError(f"{command[at]} did not say how it ended")


class CommandsHere(CommandLineHere):
    """The command in this process, and its jobs in the Spark session of the tests."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        with jobs_here():
            return super().run(*arguments)
