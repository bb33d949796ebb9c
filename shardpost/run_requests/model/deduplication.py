"""What is decided on a run request: the first one of a key wins.

While its run is active, the same request again changes nothing, and another payload under the same
key is a conflict: recorded, and not run.
"""

import json
from dataclasses import dataclass

from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Record
from shardpost.run_requests.model.commands import Command, CommandState, Release
from shardpost.run_requests.model.requests import Refused, Request, RequestRules, parse, shown


@dataclass(frozen=True)
class Issue:
    """The request wins: this command is to be issued."""

    command: Command


@dataclass(frozen=True)
class AlreadyRunning:
    """The same is active already: the request changes nothing."""

    command: Command


@dataclass(frozen=True)
class Conflict:
    """Another payload is active under this key."""

    reason: str


@dataclass(frozen=True)
class Forward:
    """The record is in another partition than its key's: it is forwarded to that one."""

    partition: int


RequestDecision = Issue | AlreadyRunning | Conflict | Refused | Forward


def decide_record(
    record: Record, active: Command | None, release: Release | None, rules: RequestRules
) -> RequestDecision:
    """Return what is decided on a record.

    `active` is the command in force under its key; `release` says that its run has ended, and when.
    """
    request = parse(record, rules)
    if isinstance(request, Refused):
        return request
    partition = partition_of(request.key, rules.partitions)
    if partition != record.partition:
        return Forward(partition)
    return decide(request, active, release, rules)


def decide(
    request: Request, active: Command | None, release: Release | None, rules: RequestRules
) -> Issue | AlreadyRunning | Conflict | Refused:
    """Return what is decided on a request; one from before a run's end counts as made during it."""
    if request.dag not in rules.dags:
        known = ", ".join(sorted(rules.dags))
        return Refused(f"{shown(request.dag)} may not be requested, only {known}")
    if rules.now - request.at > rules.max_age:
        return Refused(
            f"requested {request.at:%Y-%m-%d %H:%M} UTC, more than {rules.max_age.days} days ago"
            " (SHARDPOST_REQUEST_DAYS): send the request again"
        )
    if active is None or (release is not None and request.at >= release.at):
        return Issue(request.command())
    if active.state is CommandState.UNREADABLE:
        return Conflict("the command that holds the key cannot be decoded")
    if _payload(request) == _payload(active):
        return AlreadyRunning(active)
    return Conflict(f"run {active.run_id}, requested by {active.requested_by}, has another payload")


def _payload(one: Request | Command) -> str:
    """Return DAG and Conf as a canonical text: the same for the same JSON; 1 and true differ."""
    return json.dumps([one.dag, one.conf], sort_keys=True)
