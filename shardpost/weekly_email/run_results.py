"""How a run of the weekly e-mail ends: exit code and document of each mode.

Also of the runs that need no Spark: a week that is frozen, and of which nothing is left to do.
Everything that such a run would check is checked, and its result is the same.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shardpost.delta import snapshots
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, one_line
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks_of
from shardpost.settings import Settings
from shardpost.weekly_email import closed_weeks, frozen_weeks, ledger_topic
from shardpost.weekly_email.checks import check
from shardpost.weekly_email.delivery_status import ShardAudience, audience_by_shard, status_of
from shardpost.weekly_email.ledger_guard import locked_shards, mark_end, mark_start
from shardpost.weekly_email.ledger_topic import LedgerReasons
from shardpost.weekly_email.model import email_request
from shardpost.weekly_email.model.email_request import EmailRequest, Mode, PreparedWeek
from shardpost.weekly_email.model.ledger import DeliveryState, ResendPolicy
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.limits import LimitSettings, too_many
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import EXPLAINED, ShardStatus, status_document


def why_skip(request: EmailRequest, settings: Settings) -> str | None:
    """Return why a run skips its week, or None if it mails it.

    A scheduled run skips what is too late. One whose audience is frozen was begun, and is not too
    late: clients may be open. The runs of a DAG, which freeze first, skip a week that is closed, or
    whose audience was erased, so that a backfill over many weeks goes on; a run that is asked to
    send refuses it.
    """
    is_first = request.mode in (Mode.FREEZE, Mode.LIST_GROUPS)
    skips_gone = is_first or request.is_scheduled
    if skips_gone and (closed := closed_weeks.find(settings, request.week, request.now)):
        return closed.in_words
    if frozen := frozen_weeks.find(settings, request.week):
        return frozen.why_no_audience if skips_gone else None
    if not request.is_scheduled:
        return None
    commits = (snapshot.committed_at for snapshot in snapshots.list_all(settings))
    first = min(commits, default=None)
    return request.week.why_skip(request.now, first, settings.weekly_lateness_days)


def skipped_result(request: EmailRequest, reason: str) -> dict[str, Any]:
    """Return the result of `freeze` with nothing in it, and why."""
    nothing = {"shards": 0, "recipients": 0, "groups": []}
    return {"week": str(request.week), "snapshot": None, **nothing, "skipped": reason}


def frozen_result(week: PreparedWeek, settings: Settings) -> dict[str, Any]:
    """Return the week, its number of clients (None if it is not frozen), and groups of shards."""
    groups = email_request.shard_groups(week.shards, settings.shards_per_task)
    return {
        "week": str(week.iso_week),
        "snapshot": week.snapshot_number,
        "as_of": week.as_of.isoformat(),
        "shards": week.partitions,
        "recipients": week.frozen.recipients if week.frozen else None,
        "groups": [email_request.shard_text(group) for group in groups],
        "skipped": None,
    }


def document_of(week: PreparedWeek, shards: Iterable[ShardStatus]) -> dict[str, Any]:
    """Return the JSON document of a run that sends."""
    return status_document(week.iso_week, shards) | {"snapshot": week.snapshot_number}


def exit_code_of(
    settings: LimitSettings, document: Mapping[str, Any], errors: Mapping[int, str]
) -> int:
    """Return the exit code; `errors` says of each shard that stopped why.

    What stopped shards, or that too many clients got no mail, goes to standard error.
    """
    if errors:
        stopped = "; ".join(f"shard {shard}: {error}" for shard, error in errors.items())
        sys.stderr.write(f"shardpost: {one_line(stopped)}\n")
        return COULD_NOT
    reasons = too_many(settings, document["week"], [document])
    for reason in reasons:
        sys.stderr.write(f"shardpost: {one_line(reason)}\n")
    return NEEDS_ATTENTION if document["unknown"] or reasons else DONE


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
    members = audience_by_shard(settings, week.frozen, week.partitions)
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
