"""Airflow's REST API, as far as Shardpost uses it: start a DAG run, and read how it ended."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx

from shardpost.errors import ShardpostError, UsageError, single_line
from shardpost.instants import parse_instant
from shardpost.run_requests.model.commands import AirflowRun, Command
from shardpost.run_requests.model.requests import REQUESTED_BY, airflow_id

log = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.5
ENDED = ("success", "failed")
BAD_REQUEST, NOT_FOUND, CONFLICT, UNPROCESSABLE = 400, 404, 409, 422
SERVER_ERROR, ATTEMPTS = 500, 3
MAX_REASON_CHARACTERS = 200  # of Airflow's answer
REJECTED = "Airflow rejects the run: "
MAX_NOTE_CHARACTERS = 1000  # of Airflow


class AirflowUnreachableError(ShardpostError):
    """Airflow did not answer."""


class AirflowRunError(ShardpostError):
    """A run failed, or takes too long."""


class StartsRuns(Protocol):
    """What a dispatch asks Airflow; ShardpostError for each unexpected answer."""

    def run(self, dag: str, run_id: str) -> AirflowRun | None:
        """Return a run; None if Airflow has no run with that id."""

    def start(self, dag: str, run_id: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run under that id, once; return why Airflow rejects it, or None."""


class AirflowApi:
    """A client that is logged in.

    ShardpostError for each answer that is an unexpected error; AirflowUnreachableError for none.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def trigger(self, dag: str, params: dict[str, Any]) -> str:
        """Start a run and return its id."""
        form = {"logical_date": None, "conf": params}
        with _answer(self._request("POST", f"{_dag_path(dag)}/dagRuns", form)) as run:
            run_id: str = run["dag_run_id"]
            return run_id

    def run(self, dag: str, run_id: str) -> AirflowRun | None:
        """Return a run; None if Airflow has no run with that id."""
        response = self._retried("GET", _run_path(dag, run_id))
        if response.status_code == NOT_FOUND:
            return None
        with _answer(response) as run:
            if run["state"] not in ENDED:
                return AirflowRun(run["state"])
            ended_at = run["end_date"] or run["start_date"] or run["run_after"]
            return AirflowRun(run["state"], parse_instant(ended_at))

    def start(self, dag: str, run_id: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run under that id, once however often this is called.

        Return why Airflow rejects it; None where it accepted it, now or before.
        """
        path = _dag_path(dag)
        response = self._retried("GET", path)
        if response.status_code == NOT_FOUND:
            return f"Airflow has no DAG {dag}"
        with _answer(response) as found:
            if found["is_stale"]:
                return f"DAG {dag} is stale in Airflow: no file defines it any more"
            if found["is_paused"]:
                return f"DAG {dag} is paused in Airflow"
        form = {"dag_run_id": run_id, "logical_date": None, "conf": conf, "note": note}
        response = self._retried("POST", f"{path}/dagRuns", form)
        if response.status_code in (BAD_REQUEST, NOT_FOUND, UNPROCESSABLE):
            return f"{REJECTED}{_shown(response)}"
        if response.status_code != CONFLICT:
            with _answer(response):
                pass
        return None

    def wait(self, dag: str, run_id: str, seconds: float, say: Callable[[str], None]) -> None:
        """Wait for a run's success, reporting its tasks; AirflowRunError if it fails or is late."""
        deadline = time.monotonic() + seconds
        path, reported = _run_path(dag, run_id), set()
        while True:
            state = self.get(path)["state"]
            for task in self.get(f"{path}/taskInstances")["task_instances"]:
                name = task["rendered_map_index"] or task["task_id"]
                if task["state"] in (*ENDED, "skipped") and name not in reported:
                    reported.add(name)
                    say(f"{dag}: {name}: {task['state']} after {task['duration'] or 0:.1f} s")
            if state in ENDED:
                break
            if time.monotonic() > deadline:
                raise AirflowRunError(f"{dag}: run {run_id} is still {state} after {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        if state != "success":
            raise AirflowRunError(f"{dag}: run {run_id} failed")

    def get(self, path: str) -> Any:
        """Return the JSON document at a path."""
        with _answer(self._request("GET", path)) as document:
            return document

    def _retried(
        self, method: str, path: str, form: dict[str, Any] | None = None
    ) -> httpx.Response:
        """Send an idempotent request, again after a server error, such as a locked SQLite."""
        for _ in range(ATTEMPTS - 1):
            response = self._request(method, path, form)
            if response.status_code < SERVER_ERROR:
                return response
            time.sleep(POLL_SECONDS)
        return self._request(method, path, form)

    def _request(
        self, method: str, path: str, form: dict[str, Any] | None = None
    ) -> httpx.Response:
        try:
            response = self._client.request(method, path, json=form)
        except httpx.InvalidURL as error:  # of an id that is too long
            short = path[:MAX_REASON_CHARACTERS]
            raise ShardpostError(f"Airflow: {method} {short}: {error}") from None
        except httpx.HTTPError as error:
            raise _unreachable(str(self._client.base_url), error) from None
        if response.is_client_error and _detail(response) is None:
            raise ShardpostError(
                f"{method} {response.url}: expected an answer from Airflow's REST API, found "
                f"{response.status_code} {_shown(response)!r}: another server answers there; "
                "check SHARDPOST_AIRFLOW_URL"
            )
        return response


@contextmanager
def log_in(
    address: str, user: str, password: str, timeout: float = TIMEOUT_SECONDS
) -> Iterator[AirflowApi]:
    """Yield a client for the Airflow at that address; `timeout` of each request in seconds."""
    with httpx.Client(base_url=address, timeout=timeout) as client:
        form = {"username": user, "password": password}
        try:
            response = client.post("/auth/token", json=form)
        except httpx.HTTPError as error:
            raise _unreachable(address, error) from None
        if response.is_error:
            raise ShardpostError(
                f"Airflow at {address} rejects the login of user {user!r}, or another server"
                f" answers there: {response.status_code} {_shown(response)!r}"
            )
        with _answer(response) as token:
            client.headers["Authorization"] = f"Bearer {token['access_token']}"
        yield AirflowApi(client)


def _dag_path(dag: str) -> str:
    return f"/api/v2/dags/{quote(dag, safe='')}"


def _run_path(dag: str, run_id: str) -> str:
    return f"{_dag_path(dag)}/dagRuns/{quote(run_id, safe='')}"


@contextmanager
def _answer(response: httpx.Response) -> Iterator[Any]:
    """Return the JSON document of an answer; an error names whose answer is wrong."""
    method, path = response.request.method, response.request.url.raw_path.decode()
    if response.is_error:
        raise ShardpostError(f"{method} {response.url}: {response.status_code} {_shown(response)}")
    try:
        yield response.json()
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ShardpostError(
            f"Airflow: {method} {path}: expected an answer from its REST API, found an invalid"
            f" answer ({type(error).__name__}: {error}): check SHARDPOST_AIRFLOW_URL"
        ) from None


def _detail(response: httpx.Response) -> Any:
    """Return Airflow's text in an error; None if the error is not from Airflow.

    A proxy answers in HTML, another server that has no such path with FastAPI's own "Not Found".
    """
    try:
        detail = response.json()["detail"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    is_of_any = (response.status_code, detail) == (NOT_FOUND, "Not Found")
    return None if is_of_any else detail


def _shown(response: httpx.Response) -> str:
    text = " ".join(str(_detail(response) or response.text).split())
    return text if len(text) <= MAX_REASON_CHARACTERS else f"{text[:MAX_REASON_CHARACTERS]}…"


def _unreachable(address: str, error: Exception) -> AirflowUnreachableError:
    return AirflowUnreachableError(f"Airflow at {address} does not answer ({error})")


class NoAnswerError(ShardpostError):
    """Airflow gave no usable answer; this command is left to the next dispatch."""


class AirflowRuns:
    """The runs of the commands of one dispatch; Airflow is not called again once it did not answer.

    `unreachable` is why Airflow cannot be called, once that is known; `errors` are its answers that
    were errors. Partitions are dispatched at the same time; calls are made one after the other,
    since they are quick, and Airflow's SQLite takes one writer.
    """

    def __init__(self, api: StartsRuns | None, unreachable: str | None = None) -> None:
        self._api, self._lock = api, threading.Lock()
        self.unreachable = unreachable
        self.errors: list[str] = []
        # What a DAG of ours is called there.
        self.id_of: Callable[[str], str] = str

    def find(self, command: Command) -> AirflowRun | None:
        """Return the run of a command, None if there is none; NoAnswerError if that is unknown."""
        with self._lock:
            dag = airflow_id(command.dag, self.id_of)
            return self._call(lambda api: api.run(dag, command.run_id))

    def start(self, command: Command, before: Callable[[], None]) -> str | None:
        """Start the run of a command; return why Airflow rejects it, or None.

        `before` is called immediately before, when there is nothing left to wait for. NoAnswerError
        if it is unknown whether the run was started; to try again does not start it twice.
        """
        note = f"run request {command.key!r}{REQUESTED_BY}{command.requested_by}"
        short = single_line(note, MAX_NOTE_CHARACTERS)
        with self._lock:
            if self.unreachable is None:
                before()
            dag = airflow_id(command.dag, self.id_of)
            return self._call(lambda api: api.start(dag, command.run_id, command.conf, short))

    def _call(self, call: Callable[[StartsRuns], T]) -> T:
        if self._api is None or self.unreachable is not None:
            raise NoAnswerError(self.unreachable or "no Airflow is configured")
        try:
            return call(self._api)
        except AirflowUnreachableError as error:
            self.unreachable = str(error)
            raise NoAnswerError(self.unreachable) from None
        except ShardpostError as error:
            log.warning("%s", error)
            self.errors.append(str(error))
            raise NoAnswerError(str(error)) from None


@dataclass(frozen=True)
class AirflowLogin:
    """Where the Airflow is in which requested runs are started, and its user, by the settings."""

    airflow_url: str | None
    airflow_user: str | None
    airflow_password: str | None = field(repr=False)


@contextmanager
def connected(login: AirflowLogin) -> Iterator[AirflowRuns]:
    """Log in to Airflow and yield its runs; where it does not answer, they hold the reason.

    UsageError if user or password is not set.
    """
    url, user, password = login.airflow_url, login.airflow_user, login.airflow_password
    if url is None or user is None or password is None:
        raise UsageError(
            "no Airflow to start runs: set SHARDPOST_AIRFLOW_URL, SHARDPOST_AIRFLOW_USER and"
            " SHARDPOST_AIRFLOW_PASSWORD"
        )
    with ExitStack() as opened:
        try:
            runs = AirflowRuns(opened.enter_context(log_in(url, user, password)))
        except ShardpostError as error:
            runs = AirflowRuns(None, str(error))
        yield runs
