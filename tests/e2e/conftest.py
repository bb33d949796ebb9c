"""A whole stack of its own: broker, sink and Airflow, driven by its command line alone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shardpost.embedded import ports
from shardpost.settings import Settings, load
from tests.conftest import environ

SHARDPOST = Path(sys.executable).parent / "shardpost"


class CommandLine:
    """The command `shardpost` as its users have it, with the settings of one stack."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.settings: Settings = load(environ)
        self._environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SHARDPOST_")
        } | environ

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run one command to its end and return its standard output."""
        done = subprocess.run(
            [str(SHARDPOST), *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run one command with --json and return what it printed."""
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Give the command line of a whole stack that is up."""
    free = {f"{part}_port": ports.choose() for part in ("kafka", "smtp", "airflow")}
    home = tmp_path_factory.mktemp("stack")
    command = CommandLine(environ(home=home, partitions=4, **free))
    try:
        command("up")
        yield command
    finally:
        command("down")


@pytest.fixture
def api(stack: CommandLine) -> Iterator[httpx.Client]:
    """Give a client of the stack's Airflow that is logged in."""
    airflow = stack.json("status")["airflow"]
    login = {"username": airflow["user"], "password": airflow["password"]}
    with httpx.Client(base_url=airflow["address"], timeout=60) as client:
        token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client
