"""What Shardpost serves from Airflow's API server, below `/shardpost`: its page, and its metrics.

Airflow asks nobody there who they are: pages ask by Airflow's login, metrics by a token of theirs.
"""

import os
import secrets
import subprocess
import sys
import threading
import time
from typing import NamedTuple
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from fastapi import APIRouter, FastAPI, Header, HTTPException, Request
from fastapi.responses import PlainTextResponse
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from shardpost.errors import ShardpostError
from shardpost.orchestration.connections import secrets_of, task_installation
from shardpost.page import site
from shardpost.settings import Declared, installations

# Those who ask within so many seconds are given what the first one was given, also a failure.
FRESH_SECONDS = 10.0
# Prometheus waits no longer (docs/monitoring/prometheus.yml).
MOST_SECONDS = 45.0
# By this Python, wherever pip put the command.
COMMAND = (sys.executable, "-c", "from shardpost.cli import main; main()", "metrics")


class NotMeasuredError(Exception):
    """The metrics could not be measured; says why."""


class _Measured:
    """The last answer, or why there was none, and when; one request at a time measures.

    In a process of its own: what a client of Kafka or of the tables does to that is not done to the
    API server.
    """

    def __init__(self, own: Declared) -> None:
        self._own = own
        self._measuring = threading.Lock()
        self._last = _Answer(-FRESH_SECONDS, "", "being measured for the first time: ask again")

    def text(self) -> str:
        """Return the metrics, or raise why there are none: of some seconds ago at most.

        While one request measures, others are given at once what was there before.
        """
        if self._measuring.acquire(blocking=False):
            try:
                if time.monotonic() - self._last.at >= FRESH_SECONDS:
                    self._last = _answer(self._own)
            finally:
                self._measuring.release()
        last = self._last
        if last.problem is not None:
            raise NotMeasuredError(last.problem)
        return last.text


class _Answer(NamedTuple):
    """What was measured, or what prevented that; `at` is of the monotonic clock, in seconds."""

    at: float
    text: str
    problem: str | None


def _answer(own: Declared) -> _Answer:
    """Measure; a failure is an answer, too, so that it is not repeated for each who asks."""
    text, problem = "", None
    try:
        text = _measured(own)
    except (NotMeasuredError, ShardpostError, OSError) as error:
        problem = str(error)
    return _Answer(time.monotonic(), text, problem)


def _measured(own: Declared) -> str:
    try:
        done = subprocess.run(
            COMMAND,
            env={**os.environ, **task_installation(own).settings.environ()},
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"no answer within {MOST_SECONDS:g} s") from None
    if done.returncode:
        raise NotMeasuredError(done.stderr.strip() or f"it ended with {done.returncode}")
    return done.stdout


metrics_router = APIRouter()


@metrics_router.get("/metrics")
def metrics(request: Request, authorization: str = Header("")) -> PlainTextResponse:
    """Return what `shardpost metrics` prints; 401 without the token of SHARDPOST_METRICS_TOKEN."""
    own, field = request.app.state.own, "metrics_token"
    expected = {"WWW-Authenticate": "Bearer"}
    refusal = HTTPException(401, "expected the bearer token of SHARDPOST_METRICS_TOKEN", expected)
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer":  # before a secrets backend is asked
        raise refusal
    token = own.one(field) or next(iter(secrets_of(own, [field]).values()), None)
    if token is None:
        raise HTTPException(403, "metrics are served once SHARDPOST_METRICS_TOKEN is set")
    if not secrets.compare_digest(given.strip().encode(), token.encode()):
        raise refusal
    try:
        return PlainTextResponse(request.app.state.measured.text(), media_type=CONTENT_TYPE_LATEST)
    except NotMeasuredError as error:
        raise HTTPException(503, f"`shardpost metrics`: {error}") from None


def app_of(own: Declared) -> FastAPI:
    """Return the app of an installation."""
    app = FastAPI(title="Shardpost", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.measured = _Measured(own)
    app.include_router(metrics_router)
    site.add_to(app, own)
    return app


def path_of(own: Declared) -> str:
    """Return where an installation's app is: `/shardpost/us`."""
    return f"/shardpost/{own.name}".rstrip("/")


# Where Airflow itself may be below a path. Without the last slash Airflow's own page would answer.
BELOW = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


class ShardpostApp(AirflowPlugin):
    """Adds the app to Airflow's API server, and the page to its navigation."""

    name = "shardpost"
    fastapi_apps = [  # noqa: RUF012 - Airflow's form
        {"app": app_of(own), "url_prefix": path_of(own), "name": f"Shardpost {own.name}".strip()}
        for own in installations()
    ]
    external_views = [  # noqa: RUF012
        {
            "name": f"Shardpost {own.name}".strip(),
            "href": f"{BELOW}{path_of(own)}/",
            "destination": "nav",
            "url_route": path_of(own).strip("/").replace("/", "-"),
            "nav_top_level": True,
        }
        for own in installations()
    ]
