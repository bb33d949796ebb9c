"""Late runs, the heartbeat, and where tasks run, in a real Airflow."""

import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from shardpost.embedded import airflow
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.locks.locks import exclusive
from tests.e2e.conftest import eventually
from tests.support.command_line import CommandLine
from tests.support.installed import installed


def started(api: httpx.Client, dag: str) -> str:
    """Start a run by hand; return its path in the API."""
    form = {"logical_date": None}
    run = api.post(f"/api/v2/dags/{dag}/dagRuns", json=form).raise_for_status().json()
    return f"/api/v2/dags/{dag}/dagRuns/{quote(run['dag_run_id'])}"


def has_state(api: httpx.Client, path: str, state: str) -> bool:
    return bool(api.get(path).raise_for_status().json()["state"] == state)


def let_deadlines_pass(stack: CommandLine) -> bool:
    """Put those of compactions into the past; False without any, or while SQLite is locked."""
    late = "UPDATE deadline SET deadline_time = '2026-01-01 00:00:00.000000' WHERE dagrun_id IN"
    runs = "(SELECT id FROM dag_run WHERE dag_id = 'compact_positions')"
    try:
        with sqlite3.connect(airflow.database(stack.settings), timeout=60) as database:
            return database.execute(f"{late} {runs}").rowcount > 0
    except sqlite3.OperationalError:
        return False


def test_a_late_run_is_alerted_until_one_ends_well(stack: CommandLine, api: httpx.Client) -> None:
    def is_said(state: str) -> bool:
        log = (stack.settings.home / "alerts.log").read_text()
        return f"{state} (risk) deadline-missed of compact_positions\n" in log

    (stack.settings.home / "alerts.log").touch()
    files = installed(stack.settings).files
    with exclusive(files, COMPACT_POSITIONS.name, "a test", wait=60):  # which runs wait for
        run = started(api, "compact_positions")  # perhaps behind a scheduled one
        eventually(partial(let_deadlines_pass, stack), "there is no deadline")
        eventually(partial(is_said, "firing"), "nobody is alerted of a late run")
    eventually(partial(has_state, api, run, "success"), "the run does not end well")
    eventually(partial(is_said, "resolved"), "the alert does not end")


class Beats(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def service(stack: CommandLine) -> Iterator[Any]:
    """Give the service of the stack's heartbeat: what it has seen."""
    server: Any = HTTPServer(("127.0.0.1", urlsplit(stack.settings.heartbeat_url).port or 0), Beats)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_watch_sends_a_heartbeat_from_where_the_setting_says(
    stack: CommandLine, api: httpx.Client, service: Any
) -> None:
    api.post("/api/v2/pools", json={"name": "beats", "slots": 1}).raise_for_status()
    run = started(api, "watch_kafka")
    eventually(partial(has_state, api, run, "success"), "the watch does not end well")
    assert set(service.seen) == {"/beat"}
    found = api.get(f"{run}/taskInstances").raise_for_status().json()["task_instances"]
    places = {one["task_id"]: (one["pool"], one["queue"]) for one in found}
    assert places == {"watch": ("default_pool", "watching"), "heartbeat": ("beats", "watching")}
    weights = {one["task_id"]: one["priority_weight"] for one in found}
    assert weights == {"watch": 14, "heartbeat": 7}  # Airflow adds those of what comes after
