"""Starting in Airflow what is issued, each run once."""

import logging
from collections.abc import Callable, Iterator

from shardpost.decisions.decision import Kind
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.records import Outgoing
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_runs import AirflowRuns, NoAnswerError
from shardpost.run_requests.model.commands import Command, NoteStarted, Start
from shardpost.run_requests.partition_state import PartitionState
from shardpost.steps import step

log = logging.getLogger(__name__)


class RunStarts:
    """The runs that one partition has to start.

    `require_ownership` is called before each start; it raises FencedError if another dispatch has
    taken the partition over.
    """

    def __init__(
        self, state: PartitionState, runs: AirflowRuns, require_ownership: Callable[[], None]
    ) -> None:
        self._state, self._runs = state, runs
        self._require_ownership = require_ownership

    def start_all(self) -> Iterator[Outgoing]:
        """Start what is issued; yield the records to be written for what came of it."""
        for command, action in self._state.commands.planned():
            match action:
                case Start():
                    yield from self._start(command)
                case NoteStarted():
                    yield self._started_record(command)

    def _start(self, command: Command) -> Iterator[Outgoing]:
        try:
            rejection = self._runs.start(command, self._before_start)
        except NoAnswerError:
            return
        step("started", level=logging.DEBUG)
        if rejection is None:
            self._state.counts.started += 1
            yield self._started_record(command)
        else:
            self._state.counts.refused += 1
            yield from self._refusal(command, rejection)

    def _before_start(self) -> None:
        step("start", level=logging.DEBUG)
        self._require_ownership()

    def _started_record(self, command: Command) -> Outgoing:
        log.info("%s: run %s of %s is started", command.key, command.run_id, command.dag)
        started = self._state.commands.mark_started(command)
        return request_topics.command_record(self._state.settings, self._state.partition, started)

    def _refusal(self, command: Command, reason: str) -> Iterator[Outgoing]:
        """Free the key of a command that Airflow rejects, with a decision that says why."""
        settings, partition = self._state.settings, self._state.partition
        self._state.commands.remove(command.key)
        yield request_topics.release_record(settings, partition, command.key, reason)
        request = Coordinates(settings.topic("run-requests"), partition, command.request_offset)
        about, value = command.key.encode(), command.request()
        yield self._state.decision_on(request, about, Kind.REFUSED, reason, value)
