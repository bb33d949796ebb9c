"""The runs that need no Spark: a week that is frozen, and of which nothing is left to do.

Everything that such a run would check is checked, and its result is the same.
"""

from collections.abc import Iterator
from typing import Any

from shardpost.errors import DONE
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks_of
from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks, ledger_topic
from shardpost.weekly_email.audiences import ShardAudience, by_shard
from shardpost.weekly_email.checks import check
from shardpost.weekly_email.ledger_guard import locked_shards, mark_end, mark_start
from shardpost.weekly_email.ledger_topic import LedgerReasons
from shardpost.weekly_email.model.email_request import EmailRequest, Mode, PreparedWeek
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerIndex, ResendPolicy
from shardpost.weekly_email.model.report import EXPLAINED, ShardStatus
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.results import (
    document_of,
    exit_code_of,
    frozen_result,
    skipped_result,
    why_skip,
)
from shardpost.weekly_email.status import status_of

Result = tuple[int, dict[str, Any]]


def result_without_spark(request: EmailRequest, settings: Settings) -> Result | None:
    """Return exit code and JSON document of a run that has nothing to do; None if it has.

    Raises what the run would refuse: UsageError, ShardpostError, LockedError beside another run.
    """
    if reason := why_skip(request, settings):
        return DONE, skipped_result(request, reason)
    checked = check(request, settings)
    week = checked.week
    if request.mode is Mode.LIST_GROUPS:
        return DONE, frozen_result(week, settings)
    if week.frozen is None or not request.is_real:
        return None
    if request.mode is Mode.FREEZE:
        mark_start(settings, request.week, checked.ledger, request.now)
        return DONE, frozen_result(week, settings)
    with locked_shards(settings, request.week, week.shards):
        frozen_weeks.require_audience(settings, request.week, week.frozen)
        statuses = _statuses(settings, week, request.resend_policy(settings.on_unknown))
        if statuses is None:
            return None
        mark_start(settings, request.week, checked.ledger, request.now)
        mark_end(settings, request.week, request.now)
    document = document_of(week, statuses)
    return exit_code_of(settings, document, {}), document


def _statuses(
    settings: Settings, week: PreparedWeek, resend: ResendPolicy
) -> list[ShardStatus] | None:
    """Return the status of each of the run's shards; None if something is left to do for one."""
    members = by_shard(settings, week.frozen, week.partitions)
    found: list[ShardStatus] = []
    for shard in week.shards:
        status = _status(settings, week.iso_week, shard, members(shard), resend)
        if status is None:
            return None
        found.append(status)
    return found


def _status(
    settings: Settings, week: IsoWeek, shard: int, audience: ShardAudience, resend: ResendPolicy
) -> ShardStatus | None:
    if _has_open_transaction(settings, shard):
        return None  # it may be a dead run's, which only a run that fences it ends
    reasons = LedgerReasons(frozenset(EXPLAINED))
    index = LedgerIndex.fold(reasons.watch(ledger_topic.read(settings, week, shard)))
    if index.counts()[DeliveryState.SENDING]:
        return None  # a run makes them unknown, on record
    if any(_selected(index, audience, resend)):
        return None
    return status_of(shard, index, reasons, audience)


def _selected(index: LedgerIndex, audience: ShardAudience, resend: ResendPolicy) -> Iterator[bool]:
    """Tell of each client whether a run would do something about it."""
    clients = audience.clients
    for client, state in zip(clients, index.states(clients), strict=True):
        yield resend.selects(state, index.resent(client))


def _has_open_transaction(settings: Settings, shard: int) -> bool:
    partition = TopicPartition(settings.topic("weekly-emails"), shard)
    _, end = watermarks_of(settings, partition, committed=False)
    _, stable = watermarks_of(settings, partition, committed=True)
    return stable < end
