"""The command `shardpost` as its users have it: a process, its output, its exit code."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardpost import cli
from shardpost.settings import Settings, load, loading

SHARDPOST = Path(sys.executable).parent / "shardpost"


class CommandLine:
    """`shardpost` with the settings of these variables and no others."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.settings: Settings = load(environ)
        self._environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SHARDPOST_")
        } | environ

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [str(SHARDPOST), *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run one command that has to end with this code; return its standard output."""
        done = self.run(*arguments)
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def answer(self, *arguments: str) -> tuple[int, str, str]:
        """Run one command; return its exit code, standard output and standard error."""
        done = self.run(*arguments)
        return done.returncode, done.stdout, done.stderr

    def refused(self, *arguments: str, code: int) -> str:
        """Run one command that has to end with this code and print nothing but one line of why."""
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        [line] = [line for line in done.stderr.splitlines() if line.startswith("shardpost: ")]
        assert "Traceback" not in done.stderr
        return line

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run one command with --json and return what it printed."""
        return json.loads(self(*arguments, "--json", code=code))


class Terminal(io.StringIO):
    """What a person types, or reads, on a terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


class CommandLineHere(CommandLine):
    """The same in this process: for what a command does, where its process is not what is tested.

    What it logs is not in its standard error.
    """

    def typed(self, answers: str, *arguments: str) -> tuple[int, str, str]:
        """Run one command on a terminal, where a person types these lines."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", Terminal(answers))
            done = self._run(arguments, Terminal())
        return done.returncode, done.stdout, done.stderr

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, with these variables."""
        return self._run(arguments, io.StringIO())

    def _run(
        self, arguments: tuple[str, ...], told: io.StringIO
    ) -> subprocess.CompletedProcess[str]:
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name not in self._environ]:
                patch.delenv(name)
            for name, value in self._environ.items():
                patch.setenv(name, value)
            loading._of_this_process.cache_clear()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
                code = cli.run([*arguments])
        loading._of_this_process.cache_clear()
        return subprocess.CompletedProcess(arguments, code, said.getvalue(), told.getvalue())
