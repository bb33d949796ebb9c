"""The weekly e-mail: freeze who holds as of the week's end, then mail each client exactly once.

One request, one of four modes: leave a scheduled week out (skipped_week.py), freeze only
(freeze_result.py), dry run (dry_run.py), send (send.py).
"""

import logging

from shardpost.errors import DONE
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.weekly_email.dry_run import dry_run
from shardpost.weekly_email.freeze_result import frozen_result
from shardpost.weekly_email.model.email_request import EmailRequest, Mode
from shardpost.weekly_email.prepare import prepare
from shardpost.weekly_email.send import send
from shardpost.weekly_email.skipped_week import skipped_result, why_skip
from shardpost.weekly_email.spark.spark_errors import spark_errors_of

log = logging.getLogger(__name__)


def run(request: EmailRequest, settings: Settings) -> JobResult:
    """Do what the request's mode says; return the exit code and the JSON result."""
    if reason := why_skip(request, settings):
        log.info("skipped: %s", reason)
        return DONE, skipped_result(request, reason)
    with spark_errors_of(request.week):
        week = prepare(request, settings)
        match request.mode:
            case Mode.FREEZE | Mode.LIST_GROUPS:
                return DONE, frozen_result(week, settings)
            case Mode.DRY_RUN:
                return DONE, dry_run(week, request, settings)
            case Mode.SEND:
                return send(week, request, settings)
