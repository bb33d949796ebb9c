"""One partition of run requests: fence, read its commands, decide, commit, start.

It may be broken off at each step: what was committed is found by the next dispatch, and what was
not has no effect.
"""

import logging
from itertools import islice

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.run_requests import dispatch_records, request_topics
from shardpost.run_requests.airflow_runs import AirflowRuns, NoAnswerError
from shardpost.run_requests.command_writer import GROUP, CommandWriter
from shardpost.run_requests.model.active_commands import ActiveCommands
from shardpost.run_requests.model.commands import next_action
from shardpost.run_requests.model.dispatch_counts import DispatchCounts
from shardpost.run_requests.model.requests import RequestRules
from shardpost.run_requests.partition_state import PartitionState
from shardpost.run_requests.run_starts import RunStarts
from shardpost.settings import Settings
from shardpost.steps import step

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
            records = [out for one in batch for out in dispatch_records.decide(state, one)]
            step("commit commands", level=logging.DEBUG)
            writer.commit(records, offset)
        # The offset again also without any request: Kafka forgets one that is never committed.
        records = list(dispatch_records.release_ended(state))
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
