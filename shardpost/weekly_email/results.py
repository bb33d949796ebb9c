"""How a run of the weekly e-mail ends: exit code and document of each mode.

The mode that leaves a week out: a run of a week that it should not mail, or cannot.

The mode that only freezes: its result says which shards go into which task of the DAG.

How a run that sends ends: its exit code, its JSON document, and what it says of it.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from shardpost.delta import snapshots
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.printable import one_line
from shardpost.settings import Settings
from shardpost.weekly_email import closed_weeks, frozen_weeks
from shardpost.weekly_email.model import email_request
from shardpost.weekly_email.model.email_request import EmailRequest, Mode, PreparedWeek
from shardpost.weekly_email.model.limits import LimitSettings, too_many
from shardpost.weekly_email.model.report import ShardStatus, status_document


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
