"""A dispatch: every partition of run requests once, several at a time.

A partition is fenced first; then its commands are read, its requests decided and committed, and
runs started in Airflow. It may be interrupted at each step: what was committed is found by the next
dispatch, and what was not has no effect.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from shardpost.alerts.model.alert import EVENT, REQUESTS_LOST, Condition
from shardpost.decisions import SHARDPOST, Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.instants import instant_of
from shardpost.kafka.offsets import watermark_of
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Coordinates, Outgoing, Record, TopicPartition
from shardpost.kafka.transactions import LostAnswerError
from shardpost.locks import refused_runs
from shardpost.logs import step
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_api import (
    AirflowLogin,
    AirflowRuns,
    NoAnswerError,
    StartsRuns,
    connected,
)
from shardpost.run_requests.model import commands
from shardpost.run_requests.model.requests import (
    MOST_BYTES,
    AlreadyRunning,
    Forward,
    NotRun,
    RequestRules,
    decide_record,
)
from shardpost.run_requests.request_topics import GROUP, LOCK, CommandWriter
from shardpost.topics import guards
from shardpost.topics.model.finding import Severity
from shardpost.wording import counted

log = logging.getLogger(__name__)

PARALLEL_PARTITIONS = 4
MAX_ERRORS = 3  # that an error message quotes
BATCH_REQUESTS = 500  # that one transaction decides on
# A writer whose last commit is older commits again before it starts a run, to find out that the
# partition is still its own.
FRESH_SECONDS = 2.0


def dispatch(
    installation: Installation, now: datetime, own: StartsRuns | None = None
) -> commands.DispatchCounts:
    """Decide on all requests, start the runs of issued commands, free the keys of ended runs.

    `own`: the Airflow that the caller runs in; by default that of the settings. Waits for a
    dispatch that is running already, then does the same itself. Raises ShardpostError, with all
    else done, where a partition cannot be dispatched or Airflow does not answer.
    """
    with refused_runs.noting(installation.files, LOCK):
        with guards.run(installation, LOCK):
            dags = installation.settings.requestable_dags
            max_age = timedelta(installation.settings.request_days)
            rules = RequestRules(dags, max_age, request_topics.partitions(installation.kafka), now)
            login = installation.values(AirflowLogin)
            with nullcontext(AirflowRuns(own)) if own else connected(login) as runs:
                runs.id_of = installation.settings.dag_id
                counts = _dispatch_partitions(installation, runs, rules)
                if counts.forwarded:
                    counts.waiting = counts.unseen = 0  # the second time counts them again
                    counts.add(_dispatch_partitions(installation, runs, rules))
        if counts.waiting or counts.unseen:
            reason = runs.unreachable or "; ".join(runs.errors[:MAX_ERRORS])
            waiting = counted(counts.waiting, "command is", "commands are")
            raise ShardpostError(
                f"{counts.in_words()}. {waiting} committed and not started,"
                f" {counted(counts.unseen, 'run')} could not be checked: {reason}; the next"
                " dispatch retries them"
            )
    refused_runs.note(installation.files, LOCK, None)
    return counts


def _dispatch_partitions(
    installation: Installation, runs: AirflowRuns, rules: RequestRules
) -> commands.DispatchCounts:
    """Dispatch every partition; raise errors when all are done."""
    counts, errors = commands.DispatchCounts(), []
    with ThreadPoolExecutor(PARALLEL_PARTITIONS) as pool:
        for done in [
            pool.submit(_dispatch_partition, installation, partition, runs, rules)
            for partition in range(rules.partitions)
        ]:
            try:
                counts.add(done.result())
            except ShardpostError as error:
                errors.append(str(error))
    if errors:
        raise ShardpostError("; ".join(dict.fromkeys(errors)))
    return counts


def _dispatch_partition(
    installation: Installation, partition: int, runs: AirflowRuns, rules: RequestRules
) -> commands.DispatchCounts:
    """Dispatch one partition; where Kafka's client is lost, once more from its beginning."""
    try:
        return PartitionDispatch(installation, partition, runs, rules).run()
    except LostAnswerError as error:
        log.warning("%s; dispatching the partition again", error)
    return PartitionDispatch(installation, partition, runs, rules).run()


class PartitionDispatch:
    """The dispatch of one partition: its commands in force, and what was done so far."""

    def __init__(
        self, installation: Installation, partition: int, runs: AirflowRuns, rules: RequestRules
    ) -> None:
        self._installation, self._runs, self._rules = installation, runs, rules
        self._requests = TopicPartition(installation.kafka.topic("run-requests"), partition)
        self._commands: dict[str, commands.Command] = {}
        # What is next for those of which it is known how their runs are in Airflow.
        self._actions: dict[str, commands.NextAction] = {}
        self._counts = commands.DispatchCounts()

    def run(self) -> commands.DispatchCounts:
        """Decide on all requests, start what is issued; FencedError if another took over."""
        installation, partition = self._installation, self._requests.partition
        with closing(CommandWriter(installation, partition)) as writer:
            _step("fence")
            installation.tables.require_held()  # without the lock it would fence its holder
            writer.open()
            _step("read commands")
            entries = commands.fold(request_topics.command_entries(installation.kafka, partition))
            self._commands = {key: one.command for key, one in entries.items() if one.command}
            # Before requests are read: each that came during a run is then among them.
            _step("see ends")
            for key, command in self._commands.items():
                try:
                    self._actions[key] = commands.next_action(command, self._runs.find(command))
                except NoAnswerError:
                    self._counts.unseen += 1
            offset = self._process_requests(writer)
            records = list(self._start_runs(writer, offset))
            _step("commit started")
            writer.commit(records)
        states = [command.state for command in self._commands.values()]
        self._counts.waiting = states.count(commands.CommandState.ISSUED)
        return self._counts

    def _process_requests(self, writer: CommandWriter) -> int:
        """Decide on all requests, free the keys of ended runs; return the offset committed."""
        offset = self._first_offset(writer)
        _step("read requests")
        kafka = self._installation.kafka
        requests = map(record_of, read_to_end(kafka, self._requests, start=offset, committed=True))
        while batch := list(islice(requests, BATCH_REQUESTS)):
            offset = batch[-1].offset + 1
            records = [out for record in batch for out in self._decide(record)]
            _step("commit commands")
            writer.commit(records, offset)
        # The offset again also without any request: Kafka forgets one that is never committed.
        records = [out for key in sorted(self._commands) for out in self._release(key)]
        _step("commit releases")
        writer.commit(records, offset)
        return offset

    def _first_offset(self, writer: CommandWriter) -> int:
        low, high = watermark_of(self._installation.kafka, self._requests, committed=False)
        committed = writer.committed_offset()
        if committed is None:
            return low
        if committed > high:
            raise ShardpostError(
                f"{self._requests}: dispatched up to offset {committed}, but it ends at {high}: the"
                " topic was deleted and recreated; delete the offsets of the group"
                f" {GROUP} for it"
            )
        if committed < low:
            from shardpost.alerts import notifier  # with the tables, which no other dispatch needs

            lost = f"{self._requests.at(committed)} to {low - 1}"
            self._counts.lost.append(lost)
            text = f"Kafka deleted run requests before they were read: {lost}"
            meaning = "the requested runs did not start, and their requesters got no answer"
            loss = Condition(REQUESTS_LOST, lost, Severity.LOSS, text, meaning, EVENT)
            # Before an offset is committed behind what nobody will read.
            notifier.report(self._installation, loss, self._rules.now)
        return max(low, committed)

    def _decide(self, record: Record) -> Iterator[Outgoing]:
        key = (record.key or b"").decode(errors="replace")
        where, active = record.coordinates, self._commands.get(key)
        match decide_record(record, active, self._release_of(key), self._rules):
            case commands.Command() as command:
                log.info("%s: %s: issued, run %s", where, key, command.run_id)
                self._counts.issued += 1
                yield from self._release(key)  # in the place of one whose run has ended
                self._commands[key], self._actions[key] = command, commands.NextStep.START
                yield self._command_record(command)
            case AlreadyRunning(command):
                log.info("%s: %s: already running, run %s", where, key, command.run_id)
                self._counts.already_running += 1
            case NotRun(reason, kind):
                self._counts.conflicts += kind is Kind.CONFLICT
                self._counts.refused += kind is Kind.REFUSED
                yield self._not_run_record(record, kind, reason)
            case Forward(partition):
                log.info("%s: %s: forwarded to its partition, %d", where, key, partition)
                self._counts.forwarded += 1
                at_ms = int(instant_of(record.timestamp).timestamp() * 1000)
                yield Outgoing(record.topic, record.key, record.value, [], partition, at_ms)

    def _release_of(self, key: str) -> commands.Release | None:
        action = self._actions.get(key)
        return action if isinstance(action, commands.Release) else None

    def _release(self, key: str) -> Iterator[Outgoing]:
        """Free a key if its run has ended; record it if a run was deleted in Airflow."""
        release = self._release_of(key)
        if release is None:
            return
        log.info("%s: released: %s", key, release.why)
        self._counts.released += 1
        yield self._release_record(key, release.why)
        if release.deleted:
            yield self._decision(key.encode(), Kind.RELEASED, release.why)

    def _not_run_record(self, record: Record, kind: Kind, reason: str) -> Outgoing:
        """Return the decision on a request that is not run; it keeps the request itself."""
        about = record.key or b""
        if not about or len(about) > MOST_BYTES:
            about = f"run-requests-{record.partition}-{record.offset}".encode()
        value = (record.value or b"")[:MOST_BYTES]
        return self._decision_on(record.coordinates, about, kind, reason, value)

    def _decision_on(
        self, request: Coordinates, about: bytes, kind: Kind, reason: str, value: bytes
    ) -> Outgoing:
        why = f"{request}: {reason}"
        log.warning("%s: %s", kind, why)
        headers = {"request-offset": str(request.offset).encode(), "request": value}
        return self._decision(about, kind, why, headers)

    def _start_runs(self, writer: CommandWriter, offset: int) -> Iterator[Outgoing]:
        """Start issued commands; yield the records of their outcomes."""

        def before() -> None:
            _step("start")
            if not writer.has_committed_within(FRESH_SECONDS):
                writer.commit([], offset)  # FencedError if another dispatch has taken over

        for key, action in [*self._actions.items()]:
            command = self._commands[key]
            if action not in (commands.NextStep.NOTE_STARTED, commands.NextStep.START):
                continue
            if action is commands.NextStep.START:
                try:
                    rejection = self._runs.start(command, before)
                except NoAnswerError:
                    continue
                _step("started")
                if rejection is not None:
                    self._counts.refused += 1
                    yield self._release_record(key, rejection)
                    request = self._requests.at(command.request_offset)
                    about, value = key.encode(), command.request()
                    yield self._decision_on(request, about, Kind.REFUSED, rejection, value)
                    continue
                self._counts.started += 1
            log.info("%s: started run %s of %s", key, command.run_id, command.dag)
            started = self._commands[key] = replace(command, state=commands.CommandState.STARTED)
            del self._actions[key]
            yield self._command_record(started)

    def _command_record(self, command: commands.Command) -> Outgoing:
        topic, partition = self._installation.kafka.topic("run-commands"), self._requests.partition
        return Outgoing(topic, command.key.encode(), command.value(), [], partition)

    def _release_record(self, key: str, reason: str) -> Outgoing:
        del self._commands[key]
        self._actions.pop(key, None)
        return request_topics.release_record(
            self._installation.kafka, self._requests.partition, key, reason
        )

    def _decision(
        self, about: bytes, kind: Kind, why: str, headers: dict[str, bytes] | None = None
    ) -> Outgoing:
        decision = Decision(about, kind, SHARDPOST, self._rules.now, why)
        return decisions_topic.written(self._installation.kafka, decision, headers or {})


def _step(name: str) -> None:
    step(name, level=logging.DEBUG)
