"""Airflow's REST API, as far as Shardpost drives it: start a DAG run, and see how it ended."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from shardpost.errors import ShardpostError

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.5
ENDED = ("success", "failed")


class AirflowApi:
    """A client that is logged in."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def unpause(self, dag: str) -> None:
        """Let a DAG's runs start."""
        self._ask("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def trigger(self, dag: str, params: dict[str, Any]) -> str:
        """Start a run and return its id."""
        form = {"logical_date": None, "conf": params}
        run: str = self._ask("POST", f"/api/v2/dags/{dag}/dagRuns", form)["dag_run_id"]
        return run

    def wait(self, dag: str, run: str, seconds: float, say: Callable[[str], None]) -> None:
        """Wait for a run's success; ShardpostError if it fails or takes longer.

        Says each task's end.
        """
        deadline = time.monotonic() + seconds
        said: set[str] = set()
        while (
            state := self._ask("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]
        ) not in ENDED:
            self._tell(dag, run, said, say)
            if time.monotonic() > deadline:
                raise ShardpostError(f"{dag}: run {run} is still {state} after {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        self._tell(dag, run, said, say)
        if state != "success":
            raise ShardpostError(f"{dag}: run {run} failed: its log in the UI says why")

    def _tell(self, dag: str, run: str, said: set[str], say: Callable[[str], None]) -> None:
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances"
        for task in self._ask("GET", path)["task_instances"]:
            name = task["rendered_map_index"] or task["task_id"]
            if task["state"] in (*ENDED, "skipped") and name not in said:
                said.add(name)
                say(f"{dag}: {name}: {task['state']} after {task['duration'] or 0:.1f} s")

    def _ask(self, method: str, path: str, form: dict[str, Any] | None = None) -> Any:
        try:
            answer = self._client.request(method, path, json=form)
        except httpx.HTTPError as error:
            raise ShardpostError(f"Airflow at {self._client.base_url}: {error}") from None
        if answer.is_error:
            raise ShardpostError(f"Airflow: {method} {path}: {answer.status_code} {answer.text}")
        return answer.json()


@contextmanager
def log_in(address: str, user: str, password: str) -> Iterator[AirflowApi]:
    """Give a client for an Airflow at that address."""
    with httpx.Client(base_url=address, timeout=TIMEOUT_SECONDS) as client:
        answer = client.post("/auth/token", json={"username": user, "password": password})
        if answer.is_error:
            raise ShardpostError(f"Airflow at {address} refuses user {user}: {answer.status_code}")
        client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        yield AirflowApi(client)
