"""Airflow as a dispatch sees it: no longer called once it did not answer."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeVar

from shardpost.errors import ShardpostError, UsageError
from shardpost.run_requests.airflow_api import AirflowUnreachableError, log_in
from shardpost.run_requests.model.commands import AirflowRun, Command
from shardpost.settings import Settings

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_NOTE_CHARACTERS = 1000  # of Airflow


class Api(Protocol):
    """What a dispatch needs of Airflow's API."""

    def run(self, dag: str, run_id: str) -> AirflowRun | None:
        """Return a run; None if Airflow has none of that id."""

    def start(self, dag: str, run_id: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run, once; return why it is rejected, or None."""


class NoAnswerError(ShardpostError):
    """Airflow gave no usable answer; nothing is done about this command now."""


class AirflowRuns:
    """The runs of the commands of one dispatch.

    `unreachable` is why Airflow cannot be called, once that is known; `errors` are its answers that
    were errors. Partitions are dispatched at the same time; calls are made one after the other,
    since they are quick, and Airflow's SQLite takes one writer.
    """

    def __init__(self, api: Api | None, unreachable: str | None = None) -> None:
        self._api, self._lock = api, threading.Lock()
        self.unreachable = unreachable
        self.errors: list[str] = []

    def find(self, command: Command) -> AirflowRun | None:
        """Return the run of a command, None if there is none; NoAnswerError if that is unknown."""
        with self._lock:
            return self._call(lambda api: api.run(command.dag, command.run_id))

    def start(self, command: Command, before: Callable[[], None]) -> str | None:
        """Start the run of a command; return why Airflow rejects it, or None.

        `before` is called immediately before, when there is nothing left to wait for. NoAnswerError
        if it is unknown whether the run was started; to try again does not start it twice.
        """
        note = f"run request {command.key!r}, requested by {command.requested_by}"
        short = note[:MAX_NOTE_CHARACTERS]
        with self._lock:
            if self.unreachable is None:
                before()
            return self._call(
                lambda api: api.start(command.dag, command.run_id, command.conf, short)
            )

    def _call(self, call: Callable[[Api], T]) -> T:
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


@contextmanager
def connected(settings: Settings) -> Iterator[AirflowRuns]:
    """Log in to Airflow and give its runs, also where it does not answer: they hold the reason.

    UsageError if user or password is not set.
    """
    url, user, password = settings.airflow_url, settings.airflow_user, settings.airflow_password
    if url is None or user is None or password is None:
        raise UsageError(
            "SHARDPOST_AIRFLOW_URL needs SHARDPOST_AIRFLOW_USER and SHARDPOST_AIRFLOW_PASSWORD"
        )
    with ExitStack() as opened:
        try:
            runs = AirflowRuns(opened.enter_context(log_in(url, user, password)))
        except ShardpostError as error:
            runs = AirflowRuns(None, str(error))
        yield runs
