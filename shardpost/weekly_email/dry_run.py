"""The dry run: list who would get what now, and change nothing."""

import json
import logging
from collections.abc import Iterator
from typing import Any

from shardpost.settings import Settings
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.spark.dry_run_tasks import would_send

log = logging.getLogger(__name__)

# Lines of a dry run that go to the log as well.
MOST_LOGGED = 1000


def dry_run(week: PreparedWeek, request: EmailRequest, settings: Settings) -> dict[str, Any]:
    """List who would get what: in the result, or as lines of JSON in the request's file."""
    lines = would_send(settings, week, request.resend_policy(settings.on_unknown))
    result: dict[str, Any] = {"week": str(week.iso_week), "snapshot": week.snapshot_number}
    if request.recipients is None:
        result["recipients"] = [json.loads(line) for line in _logged(lines)]
        count = len(result["recipients"])
    else:
        with request.recipients.open("w") as file:
            count = sum(bool(file.write(line + "\n")) for line in lines)
    log.info("%s: %d would get an e-mail", week.iso_week, count)
    return result


def _logged(lines: Iterator[str]) -> Iterator[str]:
    """Pass the lines on; the first of them go to the log."""
    for number, line in enumerate(lines):
        if number < MOST_LOGGED:
            log.info("would send %s", line)
        yield line
