"""Airflow as the dispatch sees it: asked as long as it answers, and no longer."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from shardpost.errors import ShardpostError
from shardpost.run_requests.airflow_api import AirflowUnreachableError
from shardpost.run_requests.model.commands import AirflowRun, Command

T = TypeVar("T")
log = logging.getLogger(__name__)

LONGEST_NOTE = 1000  # characters that Airflow takes


class Api(Protocol):
    """What of Airflow's API is needed."""

    def run(self, dag: str, run: str) -> AirflowRun | None:
        """Return what there is of a run; None if there is none of that id."""

    def start(self, dag: str, run: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run, once; return why it is not taken, or None."""


class NoAnswerError(ShardpostError):
    """Airflow gave no answer that counts; nothing follows for this command, now."""


class AirflowRuns:
    """The runs of one dispatch; `down` is why Airflow cannot be asked, once that is known.

    Partitions ask at the same time; Airflow is asked one thing after the other, as it is nimble
    enough, and its SQLite takes one writer.
    """

    def __init__(self, api: Api | None, down: str | None = None) -> None:
        self._api, self.down, self._lock = api, down, threading.Lock()
        self.troubles: list[str] = []

    def of(self, command: Command) -> AirflowRun | None:
        """Return what Airflow has of a command's run; NoAnswerError if that cannot be known."""
        with self._lock:
            return self._asked(lambda api: api.run(command.dag, command.run_id))

    def start(self, command: Command, first: Callable[[], None]) -> str | None:
        """Start a command's run; return why Airflow refuses it, or None.

        `first` is called just before, when nothing is to be waited for any more. NoAnswerError if
        nobody can say whether it was started; asking again starts it no second time.
        """
        note = f"run request {command.key!r}, asked for by {command.requested_by}"[:LONGEST_NOTE]
        with self._lock:
            if self.down is None:
                first()
            return self._asked(
                lambda api: api.start(command.dag, command.run_id, command.conf, note)
            )

    def _asked(self, question: Callable[[Api], T]) -> T:
        if self._api is None or self.down is not None:
            raise NoAnswerError(self.down or "there is no Airflow")
        try:
            return question(self._api)
        except AirflowUnreachableError as error:
            self.down = str(error)
            raise NoAnswerError(self.down) from None
        except ShardpostError as error:
            log.warning("%s", error)
            self.troubles.append(str(error))
            raise NoAnswerError(str(error)) from None
