"""Airflow's REST API, as far as Shardpost drives it: start a DAG run, and see how it ended."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

from shardpost.errors import ShardpostError
from shardpost.run_requests.model.commands import AirflowRun

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.5
ENDED = ("success", "failed")
BAD_REQUEST, NOT_FOUND, CONFLICT, UNPROCESSABLE = 400, 404, 409, 422
SERVER_ERROR, TRIES = 500, 3
OWN_REASONS = 200  # characters of Airflow's answer that are passed on


class AirflowUnreachableError(ShardpostError):
    """Airflow did not answer."""


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

    def run(self, dag: str, run: str) -> AirflowRun | None:
        """Return what Airflow has of a run; None if there is none of that id."""
        answer = self._repeated("GET", _run_path(dag, run))
        if answer.status_code == NOT_FOUND:
            return None
        found = _form("GET", _run_path(dag, run), answer)
        if found["state"] not in ENDED:
            return AirflowRun(found["state"])
        ended = found["end_date"] or found["start_date"] or found["run_after"]
        return AirflowRun(found["state"], datetime.fromisoformat(ended))

    def start(self, dag: str, run: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run under that id, once however often it is asked.

        Return why Airflow does not take it; None where it did, now or before.
        """
        if reason := self._not_startable(dag):
            return reason
        path = f"/api/v2/dags/{quote(dag, safe='')}/dagRuns"
        form = {"dag_run_id": run, "logical_date": None, "conf": conf, "note": note}
        answer = self._repeated("POST", path, form)
        if answer.status_code in (BAD_REQUEST, NOT_FOUND, UNPROCESSABLE):
            return f"Airflow does not take it: {_detail(answer)}"
        if answer.status_code != CONFLICT:
            _form("POST", path, answer)
        return None

    def _not_startable(self, dag: str) -> str | None:
        path = f"/api/v2/dags/{quote(dag, safe='')}"
        answer = self._repeated("GET", path)
        if answer.status_code == NOT_FOUND:
            return f"Airflow has no DAG {dag}"
        found = _form("GET", path, answer)
        if found["is_stale"]:
            return f"DAG {dag} is no longer among Airflow's DAGs"
        return f"DAG {dag} is paused in Airflow" if found["is_paused"] else None

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
        return _form(method, path, self._request(method, path, form))

    def _repeated(
        self, method: str, path: str, form: dict[str, Any] | None = None
    ) -> httpx.Response:
        """Ask what may be asked again, where Airflow breaks, as on a locked SQLite."""
        for _ in range(TRIES - 1):
            answer = self._request(method, path, form)
            if answer.status_code < SERVER_ERROR:
                return answer
            time.sleep(POLL_SECONDS)
        return self._request(method, path, form)

    def _request(
        self, method: str, path: str, form: dict[str, Any] | None = None
    ) -> httpx.Response:
        try:
            return self._client.request(method, path, json=form)
        except httpx.HTTPError as error:
            raise _unreachable(str(self._client.base_url), error) from None


@contextmanager
def log_in(address: str, user: str, password: str) -> Iterator[AirflowApi]:
    """Give a client for an Airflow at that address."""
    with httpx.Client(base_url=address, timeout=TIMEOUT_SECONDS) as client:
        form = {"username": user, "password": password}
        try:
            answer = client.post("/auth/token", json=form)
        except httpx.HTTPError as error:
            raise _unreachable(address, error) from None
        if answer.is_error:
            raise ShardpostError(f"Airflow at {address} refuses user {user}: {answer.status_code}")
        client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        yield AirflowApi(client)


def _run_path(dag: str, run: str) -> str:
    return f"/api/v2/dags/{quote(dag, safe='')}/dagRuns/{quote(run, safe='')}"


def _form(method: str, path: str, answer: httpx.Response) -> Any:
    if answer.is_error:
        raise ShardpostError(f"Airflow: {method} {path}: {answer.status_code} {answer.text}")
    return answer.json()


def _detail(answer: httpx.Response) -> str:
    """Return what an answer says, on one line."""
    try:
        said = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        said = answer.text
    text = " ".join(str(said).split())
    return text if len(text) <= OWN_REASONS else f"{text[:OWN_REASONS]}…"


def _unreachable(address: str, error: Exception) -> AirflowUnreachableError:
    return AirflowUnreachableError(f"Airflow at {address} does not answer ({error})")
