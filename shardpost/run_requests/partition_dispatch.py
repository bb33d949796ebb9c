"""One partition of run requests during a dispatch.

What a dispatch writes for the requests of a partition, and for the runs that have ended.

Starting in Airflow what is issued, each run once.

One partition of run requests: fence, read its commands, decide, commit, start.

It may be broken off at each step: what was committed is found by the next dispatch, and what was
not has no effect.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from shardpost.decisions import SHARDPOST, Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import Coordinates, TopicPartition
from shardpost.kafka.records import Outgoing, Record
from shardpost.logs import step
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_api import AirflowRuns, NoAnswerError
from shardpost.run_requests.model.commands import (
    ActiveCommands,
    Command,
    DispatchCounts,
    NoteStarted,
    Start,
    next_action,
)
from shardpost.run_requests.model.requests import (
    AlreadyRunning,
    Conflict,
    Forward,
    Issue,
    Refused,
    RequestRules,
    decide_record,
)
from shardpost.run_requests.request_topics import GROUP, CommandWriter
from shardpost.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionState:
    """The commands in force in a partition, and what the dispatch has done so far."""

    settings: Settings
    partition: int
    rules: RequestRules
    commands: ActiveCommands
    counts: DispatchCounts = field(default_factory=DispatchCounts)

    def decision_on(
        self, request: Coordinates, about: bytes, kind: Kind, reason: str, value: bytes
    ) -> Outgoing:
        """Return the record of a decision on a request, with the request's value in a header."""
        why = f"{request}: {reason}"
        log.warning("%s: %s", kind, why)
        decision = Decision(about, kind, SHARDPOST, self.rules.now, why)
        headers = {"request-offset": str(request.offset).encode(), "request": value}
        return decisions_topic.written(self.settings, decision, headers)


def decide(state: PartitionState, record: Record) -> Iterator[Outgoing]:
    """Decide on one request; yield the records to be written for it."""
    key = (record.key or b"").decode(errors="replace")
    commands, where = state.commands, record.coordinates
    match decide_record(record, commands.get(key), commands.release_of(key), state.rules):
        case Issue(command):
            log.info("%s: %s: issued, run %s", where, key, command.run_id)
            yield from _issue(state, command)
        case AlreadyRunning(command):
            log.info("%s: %s: already running, run %s", where, key, command.run_id)
            state.counts.already_running += 1
        case Conflict(reason):
            state.counts.conflicts += 1
            yield _not_run_record(state, record, Kind.CONFLICT, reason)
        case Refused(reason):
            state.counts.refused += 1
            yield _not_run_record(state, record, Kind.REFUSED, reason)
        case Forward(partition):
            log.info("%s: %s: forwarded to its partition, %d", where, key, partition)
            state.counts.forwarded += 1
            yield request_topics.forwarded_record(record, partition)


def release_ended(state: PartitionState) -> Iterator[Outgoing]:
    """Free every key whose run has ended; yield the records to be written for it."""
    for command in sorted(state.commands.all(), key=lambda command: command.key):
        yield from _release(state, command.key)


def _issue(state: PartitionState, command: Command) -> Iterator[Outgoing]:
    """Put a command in force, in the place of one whose run has ended."""
    state.counts.issued += 1
    yield from _release(state, command.key)
    state.commands.issue(command)
    yield request_topics.command_record(state.settings, state.partition, command)


def _release(state: PartitionState, key: str) -> Iterator[Outgoing]:
    """Free a key if its run has ended; a run that was deleted in Airflow is a decision, too."""
    release = state.commands.release_of(key)
    if release is None:
        return
    state.commands.remove(key)
    log.info("%s: released: %s", key, release.why)
    state.counts.released += 1
    yield request_topics.release_record(state.settings, state.partition, key, release.why)
    if release.deleted:
        now = state.rules.now
        decision = Decision(key.encode(), Kind.RELEASED, SHARDPOST, now, release.why)
        yield decisions_topic.written(state.settings, decision, {})


def _not_run_record(state: PartitionState, record: Record, kind: Kind, reason: str) -> Outgoing:
    """Return the decision on a request that is not run; it keeps the request itself."""
    about, max_bytes = record.key or b"", state.rules.max_bytes
    if not about or len(about) > max_bytes:
        about = f"run-requests-{record.partition}-{record.offset}".encode()
    value = (record.value or b"")[:max_bytes]
    return state.decision_on(record.coordinates, about, kind, reason, value)


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


# Requests that one transaction decides on.
BATCH_REQUESTS = 500
# A writer whose last commit is older commits again before it starts a run, to find out that the
# partition is still its own.
FRESH_SECONDS = 2.0


class PartitionDispatch:
    """The dispatch of one partition."""

    def __init__(
        self, settings: Settings, partition: int, runs: AirflowRuns, rules: RequestRules
    ) -> None:
        self._settings, self._partition = settings, partition
        self._runs, self._rules = runs, rules

    def run(self) -> DispatchCounts:
        """Decide on all requests, start what is issued; FencedError if another took over."""
        writer = CommandWriter(self._settings, self._partition)
        try:
            step("fence", level=logging.DEBUG)
            writer.open()
            step("read commands", level=logging.DEBUG)
            entries = request_topics.command_entries(self._settings, self._partition)
            commands = ActiveCommands(entries)
            state = PartitionState(self._settings, self._partition, self._rules, commands)
            self._check_runs(state)
            offset = self._process_requests(state, writer)
            self._start_runs(state, writer, offset)
        finally:
            writer.close()
        state.counts.waiting = commands.waiting
        return state.counts

    def _check_runs(self, state: PartitionState) -> None:
        """Plan the next action for each command, by the state of its run in Airflow.

        Before requests are read: each that came during a run is then among those that are read.
        """
        step("see ends", level=logging.DEBUG)
        for command in state.commands.all():
            try:
                state.commands.plan(command, next_action(command, self._runs.find(command)))
            except NoAnswerError:
                state.counts.unseen += 1

    def _process_requests(self, state: PartitionState, writer: CommandWriter) -> int:
        """Decide on all requests, free the keys of ended runs; return the offset committed."""
        offset = self._first_offset(state, writer)
        step("read requests", level=logging.DEBUG)
        requests = request_topics.requests(self._settings, self._partition, offset)
        while batch := list(islice(requests, BATCH_REQUESTS)):
            offset = batch[-1].offset + 1
            records = [out for one in batch for out in decide(state, one)]
            step("commit commands", level=logging.DEBUG)
            writer.commit(records, offset)
        # The offset again also without any request: Kafka forgets one that is never committed.
        records = list(release_ended(state))
        step("commit releases", level=logging.DEBUG)
        writer.commit(records, offset)
        return offset

    def _first_offset(self, state: PartitionState, writer: CommandWriter) -> int:
        requests = TopicPartition(self._settings.topic("run-requests"), self._partition)
        low, high = request_topics.request_bounds(self._settings, self._partition)
        committed = writer.committed_offset()
        if committed is None:
            return low
        if committed > high:
            raise ShardpostError(
                f"{requests}: dispatched up to offset {committed}, but it ends at {high}: the topic"
                f" was deleted and recreated; delete the offsets of the group {GROUP} for it"
            )
        if committed < low:
            state.counts.lost.append(f"{requests.at(committed)} to {low - 1}")
        return max(low, committed)

    def _start_runs(self, state: PartitionState, writer: CommandWriter, offset: int) -> None:
        def require_ownership() -> None:
            if not writer.has_committed_within(FRESH_SECONDS):
                writer.commit([], offset)

        records = list(RunStarts(state, self._runs, require_ownership).start_all())
        step("commit started", level=logging.DEBUG)
        writer.commit(records)
