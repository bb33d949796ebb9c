"""The mode that leaves a week out: a scheduled run of a week that it should not mail."""

from typing import Any

from shardpost.delta import snapshots
from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.model.email_request import EmailRequest


def why_skip(request: EmailRequest, settings: Settings) -> str | None:
    """Return why a scheduled run skips its week, or None if it mails it.

    One whose audience is frozen was begun, and is never skipped: clients may be open.
    """
    if not request.is_scheduled or frozen_weeks.find(settings, request.week):
        return None
    commits = (snapshot.committed_at for snapshot in snapshots.list_all(settings))
    first = min(commits, default=None)
    return request.week.why_skip(request.now, first, settings.weekly_lateness_days)


def skipped_result(request: EmailRequest, reason: str) -> dict[str, Any]:
    """Return the result of `freeze` with nothing in it, and why."""
    nothing = {"shards": 0, "recipients": 0, "groups": []}
    return {"week": str(request.week), "snapshot": None, **nothing, "skipped": reason}
