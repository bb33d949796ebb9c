"""The mode that leaves a week out: a run of a week that it should not mail, or cannot."""

from typing import Any

from shardpost.delta import snapshots
from shardpost.settings import Settings
from shardpost.weekly_email import closed_weeks, frozen_weeks
from shardpost.weekly_email.model.email_request import EmailRequest, Mode


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
