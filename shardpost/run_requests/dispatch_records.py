"""What a dispatch writes for the requests of a partition, and for the runs that have ended."""

import logging
from collections.abc import Iterator

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import SHARDPOST, Decision, Kind
from shardpost.kafka.records import Outgoing, Record
from shardpost.run_requests import request_topics
from shardpost.run_requests.model.commands import Command
from shardpost.run_requests.model.request_decision import (
    AlreadyRunning,
    Conflict,
    Forward,
    Issue,
    decide_record,
)
from shardpost.run_requests.model.requests import Refused
from shardpost.run_requests.partition_state import PartitionState

log = logging.getLogger(__name__)


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
