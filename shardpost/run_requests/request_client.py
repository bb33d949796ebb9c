"""Send run requests, read their status, release keys, list runs and conflicts."""

import json
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import committed_offset, watermark_of
from shardpost.kafka.records import Coordinates, Outgoing, Record, partition_of
from shardpost.kafka.topic_metadata import partition_with
from shardpost.kafka.transactions import produce
from shardpost.run_requests import request_topics
from shardpost.run_requests.model import requests
from shardpost.run_requests.model.commands import Command, CommandEntry, fold, parse_json
from shardpost.run_requests.request_topics import GROUP, LOCK, CommandWriter
from shardpost.topics import guards

# Letters are decided upon in the same topic, a million of them at a time: who needs an answer soon
# reads so many records of each partition.
RECENT_DECISIONS = 5_000


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

    UsageError for one that would be refused as it is, or whose run would be, for an unknown param;
    ShardpostError if Kafka does not accept it.
    """
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(f"request {key!r}: expected JSON, in UTF-8: {error}") from None
    parsed = requests.parse(Record(key.encode(), raw, [], 0, kafka.topic("run-requests"), 0, 0))
    if isinstance(parsed, requests.NotRun):
        raise UsageError(f"request {shown(key[:80])}: {parsed.reason}")
    if (known := requests.DAG_PARAMS.get(parsed.dag)) is not None:
        requests.require_known(parsed.conf, known.split())
    decided = partition_with(kafka, kafka.topic("decisions"), key)
    _, end = watermark_of(kafka, decided, committed=True)
    partition = partition_of(key, request_topics.partitions(kafka))
    record = Outgoing(kafka.topic("run-requests"), key.encode(), raw, [], partition)
    return SentRequest(key, produce(kafka, record), decided.at(end))


def request_status(kafka: Kafka, sent: SentRequest) -> requests.RequestStatus | None:
    """Return the status of a request; None if it is not processed yet."""
    # In this order: what was committed before the group's offset moved on is read after it.
    with closing(kafka.consumer(GROUP)) as reader:
        committed = committed_offset(kafka, reader, sent.coordinates.topic_partition) or 0
    commands = request_topics.command_entries(kafka, sent.coordinates.partition)
    entries = [entry for entry in commands if entry.key == sent.key]
    begins, offset = sent.decisions_from, sent.coordinates.offset
    own = (sent.key.encode(), str(offset).encode())
    found = decisions_topic.of_partition(kafka, begins.partition, begins.offset)
    decisions = [one for one, headers in found if (one.about, headers.get("request-offset")) == own]
    return requests.status_of(offset, entries, decisions, is_processed=committed > offset)


def release(
    installation: Installation,
    key: str,
    who: str,
    why: str,
    now: datetime,
    *,
    run_id: str | None = None,
) -> Command:
    """Free a key and return the command that held it; ShardpostError if none does.

    `run_id`: or if its run is not the one that was shown to who decides.
    """
    partition = partition_of(key, request_topics.partitions(installation.kafka))
    with guards.run(installation, LOCK), closing(CommandWriter(installation, partition)) as writer:
        writer.open()
        entry = fold(request_topics.command_entries(installation.kafka, partition)).get(key)
        if entry is None or entry.command is None:
            raise ShardpostError(
                f"no requested run is active under key {key}: see `shardpost runs list`"
            )
        if run_id not in (None, entry.command.run_id):
            found = f"expected run {run_id}, found the newer run {entry.command.run_id}"
            raise ShardpostError(f"key {key}: {found}: nothing was released")
        decision = Decision(key.encode(), Kind.RELEASED, who, now, why)
        tombstone = request_topics.release_record(
            installation.kafka, partition, key, f"by {who}: {why}"
        )
        writer.commit([tombstone, decisions_topic.written(installation.kafka, decision, {})])
    return entry.command


@dataclass(frozen=True)
class RunRow:
    """One command or conflict, as `runs list --json` prints it; a conflict has no run."""

    key: str
    dag: str | None
    run_id: str | None
    state: str
    requested_by: str | None
    since: datetime


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
        key, kind = self.decision.about.decode(errors="replace"), str(self.decision.kind)
        return RunRow(key, dag, None, kind, by, self.decision.when)


def list_decided(
    kafka: Kafka, now: datetime, days: int, *, most: int | None = None
) -> list[Decided]:
    """Return the conflicts, refusals and releases of the last `days`, oldest first.

    `most`: only among so many records at the end of each partition.
    """
    oldest, kinds = now - timedelta(days=days), (Kind.CONFLICT, Kind.REFUSED, Kind.RELEASED)
    found = [
        Decided(decision, headers.get("request"))
        for decision, headers in decisions_topic.list_since(kafka, oldest, kinds, most)
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
        RunRow(one.key, one.dag, one.run_id, str(one.state), one.requested_by, entry.at)
        for entry in commands_in_force(kafka)
        if (one := entry.command) is not None
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
