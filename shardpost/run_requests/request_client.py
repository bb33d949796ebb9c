"""Sending a run request, asking for its status, and the list of runs and conflicts."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, TypedDict

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import UsageError
from shardpost.kafka.coordinates import Coordinates, TopicPartition
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import committed_offset, watermark_of
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Outgoing
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.kafka.transactions import produce
from shardpost.run_requests import request_topics
from shardpost.run_requests.model.commands import Command, CommandEntry, fold, parse_json
from shardpost.run_requests.model.requests import MOST_BYTES, RequestStatus, status_of
from shardpost.run_requests.request_topics import GROUP


@dataclass(frozen=True)
class SentRequest:
    """A request in its topic; `decisions_from`: where decisions on it can begin."""

    key: str
    coordinates: Coordinates
    decisions_from: Coordinates


def conf_of(name: str, text: str) -> dict[str, Any]:
    """Return the params of a run that a text in JSON has; UsageError names the option."""
    why = ""
    try:
        found = parse_json(text.encode())
    except ValueError as error:
        found, why = None, f": {error}"
    if not isinstance(found, dict):
        raise UsageError(f"{name}: expected a JSON object, found {text!r}{why}")
    return found


def send_request(kafka: Kafka, key: str, value: dict[str, Any]) -> SentRequest:
    """Write a request {"Dag", "Conf", "RequestedBy"} to `run-requests`.

    UsageError for one that would be refused undecoded; ShardpostError if Kafka does not accept it.
    """
    raw = _encoded(key, value)
    decisions_from = _end_of_decisions(kafka, key)
    partition = partition_of(key, request_topics.partitions(kafka))
    record = Outgoing(kafka.topic("run-requests"), key.encode(), raw, [], partition)
    return SentRequest(key, produce(kafka, record), decisions_from)


def request_status(kafka: Kafka, sent: SentRequest) -> RequestStatus | None:
    """Return the status of a request; None if it is not processed yet."""
    # In this order: what was committed before the group's offset moved on is read after it.
    with closing(kafka.consumer(GROUP)) as reader:
        committed = committed_offset(kafka, reader, sent.coordinates.topic_partition) or 0
    entries = [
        entry
        for entry in request_topics.command_entries(kafka, sent.coordinates.partition)
        if entry.key == sent.key
    ]
    decisions = list(_decisions_on(kafka, sent))
    offset = sent.coordinates.offset
    return status_of(offset, entries, decisions, is_processed=committed > offset)


def _encoded(key: str, value: dict[str, Any]) -> bytes:
    """Return the value in JSON; UsageError if it or the key cannot be sent."""
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"request {key!r}: expected JSON, in UTF-8: {error}") from None
    if not key:
        raise UsageError("run key: expected at least one character")
    for name, size in (("key", len(key.encode())), ("value", len(raw))):
        if size > MOST_BYTES:
            raise UsageError(
                f"request: expected a {name} of at most {MOST_BYTES} bytes, found {size}"
            )
    return raw


def _end_of_decisions(kafka: Kafka, key: str) -> Coordinates:
    """Return the end of the partition of `decisions` that has the decisions on a key."""
    topic = kafka.topic("decisions")
    count = partition_counts(kafka, [topic])[topic]
    partition = TopicPartition(topic, partition_of(key, count))
    _, end = watermark_of(kafka, partition, committed=True)
    return partition.at(end)


def _decisions_on(kafka: Kafka, sent: SentRequest) -> Iterator[Decision]:
    """Yield the decisions on that very request."""
    start = sent.decisions_from
    for decision, headers in decisions_topic.of_partition(kafka, start.partition, start.offset):
        is_of_it = headers.get("request-offset") == str(sent.coordinates.offset).encode()
        if decision.about == sent.key.encode() and is_of_it:
            yield decision


class RunRow(TypedDict):
    """One command or conflict, as `runs list --json` prints it; a conflict has no run."""

    key: str
    dag: str | None
    run_id: str | None
    state: str
    requested_by: str | None
    since: str


# Letters are decided upon in the same topic, a million of them at a time: who needs an answer soon
# reads so many records of each partition.
RECENT_DECISIONS = 5_000
# What is decided on requests and run keys.
_OF_RUNS = (Kind.CONFLICT, Kind.REFUSED, Kind.RELEASED)


@dataclass(frozen=True)
class Decided:
    """What was decided on a run key, or on a request, which is `request` then."""

    decision: Decision
    request: bytes | None

    def row(self) -> RunRow:
        """Return it in the form of a run; of a request that cannot be decoded, its key alone."""
        try:
            form = parse_json(self.request or b"")
        except ValueError:  # it is not of a dispatch
            form = None
        named = form if isinstance(form, dict) else {}
        dag, by = (
            text if isinstance(text := named.get(name), str) else None
            for name in ("Dag", "RequestedBy")
        )
        return {
            "key": self.decision.about.decode(errors="replace"),
            "dag": dag,
            "run_id": None,
            "state": str(self.decision.kind),
            "requested_by": by,
            "since": self.decision.when.isoformat(),
        }


def list_decided(
    kafka: Kafka, now: datetime, days: int, *, most: int | None = None
) -> list[Decided]:
    """Return the conflicts, refusals and releases of so many days, oldest first.

    `most`: only among so many records at the end of each partition.
    """
    oldest = now - timedelta(days=days)
    chosen = decisions_topic.Chosen(_OF_RUNS, most)
    found = [
        Decided(decision, headers.get("request"))
        for decision, headers in decisions_topic.list_since(kafka, oldest, chosen)
    ]
    return sorted(found, key=lambda one: one.decision.when)


def list_runs(kafka: Kafka, decided: list[Decided]) -> list[RunRow]:
    """Return what `runs list` prints: the active commands, by key, then conflicts, oldest first.

    `decided` is of SHARDPOST_REQUEST_DAYS: so long a request is valid.
    """
    conflicts = [
        one.row()
        for one in decided
        if one.decision.kind is Kind.CONFLICT and one.request is not None
    ]
    commands = [
        _command_row(entry, entry.command)
        for entry in commands_in_force(kafka)
        if entry.command is not None
    ]
    return [*commands, *conflicts]


def commands_in_force(kafka: Kafka) -> list[CommandEntry]:
    """Return the last record of each key that is not free, by key."""
    in_force = [
        entry
        for partition in range(request_topics.partitions(kafka))
        for entry in fold(request_topics.command_entries(kafka, partition)).values()
    ]
    return sorted(in_force, key=attrgetter("key"))


def _command_row(entry: CommandEntry, command: Command) -> RunRow:
    return {
        "key": entry.key,
        "dag": command.dag,
        "run_id": command.run_id,
        "state": str(command.state),
        "requested_by": command.requested_by,
        "since": entry.at.isoformat(),
    }
