"""One partition of run requests: fence, read who runs, decide, commit, start.

Each step may be the last one: what was committed is found by the next dispatch, and what was not
counts for nobody.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import SHARDPOST, Decision, Kind
from shardpost.errors import ShardpostError
from shardpost.kafka.records import Outgoing
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_runs import AirflowRuns, NoAnswerError
from shardpost.run_requests.command_writer import GROUP, CommandWriter
from shardpost.run_requests.model.commands import (
    Command,
    CommandEntry,
    CommandState,
    NextAction,
    NoteStarted,
    Release,
    Start,
    fold,
    next_action,
)
from shardpost.run_requests.model.dispatch_counts import DispatchCounts
from shardpost.run_requests.model.requests import (
    AlreadyRunning,
    Conflict,
    Forward,
    Issue,
    Refused,
    RequestRecord,
    RequestRules,
    outcome_of,
)
from shardpost.settings import Settings
from shardpost.steps import step

log = logging.getLogger(__name__)

# Requests that one transaction decides on.
AT_ONCE = 500
# A writer whose last commit is older makes sure that the partition is its own before it starts.
FRESH_SECONDS = 2.0


class PartitionDispatch:
    """The dispatch of one partition."""

    def __init__(
        self, settings: Settings, partition: int, runs: AirflowRuns, rules: RequestRules
    ) -> None:
        self._settings, self._partition = settings, partition
        self._runs, self._rules = runs, rules
        self._held: dict[str, CommandEntry] = {}
        self._next: dict[str, NextAction] = {}
        self._place = 0
        self.tally = DispatchCounts()

    def run(self) -> DispatchCounts:
        """Decide on what was asked, and start what is issued; FencedError if another took over."""
        writer = CommandWriter(self._settings, self._partition)
        try:
            step("fence", level=logging.DEBUG)
            writer.open()
            step("read commands", level=logging.DEBUG)
            self._held = fold(request_topics.command_entries(self._settings, self._partition))
            self._see_ends()
            self._take_requests(writer)
            self._start(writer)
        finally:
            writer.close()
        commands = [entry.command for entry in self._held.values() if entry.command]
        self.tally.waiting = sum(command.state is CommandState.ISSUED for command in commands)
        return self.tally

    # What has ended

    def _see_ends(self) -> None:
        """Learn from Airflow how the runs stand.

        Before requests are read: then each that came while a run was on its way is among those.
        """
        step("see ends", level=logging.DEBUG)
        for key, entry in self._held.items():
            assert entry.command is not None  # noqa: S101 - a fold keeps no others
            try:
                self._next[key] = next_action(entry.command, self._runs.of(entry.command))
            except NoAnswerError:
                self.tally.unseen += 1

    def _released(self, key: str) -> Release | None:
        verdict = self._next.get(key)
        return verdict if isinstance(verdict, Release) else None

    # What was asked

    def _take_requests(self, writer: CommandWriter) -> None:
        self._place = self._first_offset(writer)
        step("read requests", level=logging.DEBUG)
        asked = request_topics.requests(self._settings, self._partition, self._place)
        while batch := list(islice(asked, AT_ONCE)):
            self._place = batch[-1].offset + 1
            writes = [write for record in batch for write in self._decided(record)]
            step("commit commands", level=logging.DEBUG)
            writer.commit(writes, self._place)
        # The rest, and the place again: Kafka forgets a group's place that is never written.
        writes = [write for key in sorted(self._next) for write in self._freed(key)]
        step("commit releases", level=logging.DEBUG)
        writer.commit(writes, self._place)

    def _first_offset(self, writer: CommandWriter) -> int:
        topic = self._settings.topic("run-requests")
        low, high = request_topics.kept(self._settings, self._partition)
        place = writer.place()
        if place is not None and place > high:
            raise ShardpostError(
                f"{topic}[{self._partition}]: dispatched up to {place}, but it ends at {high}: the"
                f" topic was made anew; delete the offsets of the group {GROUP} for it"
            )
        if place is not None and place < low:
            self.tally.lost.append(f"{topic}[{self._partition}]@{place} to {low - 1}")
        return max(low, place or 0)

    def _decided(self, record: RequestRecord) -> Iterator[Outgoing]:
        """Yield what is written because of one request."""
        key = (record.key or b"").decode(errors="replace")
        outcome = outcome_of(record, self._held.get(key), self._released(key), self._rules)
        where = f"{self._settings.topic('run-requests')}[{record.partition}]@{record.offset}"
        match outcome:
            case Issue(command):
                log.info("%s: %s: issued, run %s", where, command.key, command.run_id)
                self.tally.issued += 1
                yield from self._freed(command.key)
                self._held[command.key] = CommandEntry(command.key, command, record.at)
                self._next[command.key] = Start()
                yield request_topics.command_written(self._settings, self._partition, command)
            case AlreadyRunning(command):
                log.info("%s: %s: already running, run %s", where, command.key, command.run_id)
                self.tally.already_running += 1
            case Conflict(command, reason):
                self.tally.conflicts += 1
                yield self._noted(record, Kind.CONFLICT, f"{where}: {reason}")
            case Refused(reason):
                self.tally.refused += 1
                yield self._noted(record, Kind.REFUSED, f"{where}: {reason}")
            case Forward(partition):
                log.info("%s: %s: its place is partition %d", where, key, partition)
                self.tally.forwarded += 1
                yield request_topics.forwarded(self._settings, record, partition)

    def _noted(self, record: RequestRecord, kind: Kind, why: str) -> Outgoing:
        """Return the decision on a request, which keeps the request itself."""
        about, most = record.key or b"", self._rules.most_bytes
        if not about or len(about) > most:
            about = f"run-requests-{record.partition}-{record.offset}".encode()
        return self._decision(about, kind, why, record.offset, (record.value or b"")[:most])

    def _decision(
        self, about: bytes, kind: Kind, why: str, offset: int, request: bytes
    ) -> Outgoing:
        log.warning("%s: %s", kind, why)
        decision = Decision(about, kind, SHARDPOST, self._rules.now, why)
        headers = {"request-offset": str(offset).encode(), "request": request}
        return decisions_topic.written(self._settings, decision, headers)

    def _freed(self, key: str) -> Iterator[Outgoing]:
        """Yield what frees a key whose run has ended; nothing where none has."""
        release = self._released(key)
        if release is None:
            return
        del self._held[key], self._next[key]
        log.info("%s: released: %s", key, release.why)
        self.tally.released += 1
        yield request_topics.release_written(self._settings, self._partition, key, release.why)
        if release.deleted:
            about, now = key.encode(), self._rules.now
            decision = Decision(about, Kind.RELEASED, SHARDPOST, now, release.why)
            yield decisions_topic.written(self._settings, decision, {})

    # What is to be started

    def _start(self, writer: CommandWriter) -> None:
        """Start what is issued, each run once; write what came of it."""
        writes: list[Outgoing] = []
        for key, verdict in self._next.items():
            command = self._held[key].command
            match verdict:
                case Start() if command:
                    writes.extend(self._started(writer, command))
                case NoteStarted() if command:
                    writes.append(self._note_started(command))
        step("commit started", level=logging.DEBUG)
        writer.commit(writes)

    def _started(self, writer: CommandWriter, command: Command) -> Iterator[Outgoing]:
        try:
            refusal = self._runs.start(command, lambda: self._require_ours(writer))
        except NoAnswerError:
            return
        step("started", level=logging.DEBUG)
        if refusal is None:
            self.tally.started += 1
            yield self._note_started(command)
            return
        self.tally.refused += 1
        del self._held[command.key]
        yield from self._refused(command, refusal)

    def _require_ours(self, writer: CommandWriter) -> None:
        """Raise FencedError if this process was halted, and another has taken over since."""
        step("start", level=logging.DEBUG)
        if not writer.fresh(FRESH_SECONDS):
            writer.commit([], self._place)

    def _note_started(self, command: Command) -> Outgoing:
        log.info("%s: run %s of %s is started", command.key, command.run_id, command.dag)
        self._held[command.key] = replace(self._held[command.key], command=command.started)
        return request_topics.command_written(self._settings, self._partition, command.started)

    def _refused(self, command: Command, reason: str) -> Iterator[Outgoing]:
        """Yield what frees a key whose command Airflow refuses, and says why."""
        offset = command.request_offset
        why = f"{self._settings.topic('run-requests')}[{self._partition}]@{offset}: {reason}"
        yield request_topics.release_written(self._settings, self._partition, command.key, reason)
        about, request = command.key.encode(), command.request()
        yield self._decision(about, Kind.REFUSED, why, offset, request)
