"""A whole stack of its own: broker, sink and Airflow, driven by its command line alone."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest

from shardpost.embedded import airflow, daemons
from shardpost.settings import Settings
from tests.conftest import environ
from tests.support.command_line import CommandLine
from tests.support.how_far import up_to
from tests.support.job_process import is_met_within

SECONDS = 1200  # of a test; the first one starts the stack
DEADLINE_SECONDS = 300
# By default all files are parsed twice a minute. Airflow waits for events of an asset from the
# second time on.
SELDOM_PARSED = "[dag_processor]\nmin_file_process_interval = 90\n"
TASK_OPTIONS = {
    "watch_kafka": {"queue": "watching", "priority_weight": 7},
    "watch_kafka.heartbeat": {"pool": "beats"},  # which is not there yet
}
# Where a test starts all that runs by hand.
NEVER = "0 0 29 2 *"
SCHEDULES = ("compact_schedule", "sweep_schedule", "watch_schedule", "maintain_schedule")
UNSCHEDULED = dict.fromkeys(SCHEDULES, NEVER)
SERVER_ERROR, CONFLICT = 500, 409
LOCKED_SECONDS = 30  # longer than a process holds SQLite's lock on a busy machine


class RepeatedOnServerError(httpx.HTTPTransport):
    """Repeats what the API server could not do, since another process held SQLite's lock."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        until = time.monotonic() + LOCKED_SECONDS
        while True:
            response = super().handle_request(request)
            if response.status_code < SERVER_ERROR or time.monotonic() > until:
                return response
            response.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder their time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Give the command line of a whole stack that is up; taken down, it leaves no process.

    Its schedules start no job while tests run that job by a command, which its lock would refuse.
    """
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    home = tmp_path_factory.mktemp("stack")
    passed = (datetime.now(UTC) - timedelta(minutes=5)).minute
    hourly = dict.fromkeys(("compact_schedule", "sweep_schedule"), f"{passed} * * * *")
    rules = {
        "heartbeat_url": f"http://127.0.0.1:{daemons.choose_port()}/beat",
        "task_options": json.dumps(TASK_OPTIONS),
    }
    command = CommandLine(environ(home=home, partitions=up_to(4, 2), **hourly, **rules, **free))
    (command.settings.folder("airflow") / "airflow.cfg").write_text(SELDOM_PARSED)
    try:
        command("up")
        yield command
    finally:
        command("down")
    assert processes_of(home) == []


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the processes whose command names a folder."""
    return [process for process in psutil.process_iter() if _names(process, str(home))]


def _names(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in part for part in process.cmdline())
    except psutil.Error:
        return False


@pytest.fixture
def api(stack: CommandLine) -> Iterator[httpx.Client]:
    """Give a client of the stack's Airflow that is logged in."""
    with client_of(stack.settings) as client:
        yield client


def client_of(settings: Settings) -> AbstractContextManager[httpx.Client]:
    """Give a client of the Airflow of these settings."""
    address, password = airflow.address(settings), airflow.password(settings)
    return logged_in(address, airflow.USER, password)


@contextmanager
def logged_in(address: str, user: str, password: str) -> Iterator[httpx.Client]:
    """Give a client of an Airflow."""
    login = {"username": user, "password": password}
    transport = RepeatedOnServerError()
    with httpx.Client(base_url=address, timeout=60, transport=transport) as client:
        token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def eventually(is_met: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until something holds."""
    assert is_met_within(seconds, is_met), what


@contextmanager
def paused(api: httpx.Client, dag: str) -> Iterator[None]:
    path = f"/api/v2/dags/{dag}"
    api.patch(path, json={"is_paused": True}).raise_for_status()
    try:
        yield
    finally:
        api.patch(path, json={"is_paused": False}).raise_for_status()
