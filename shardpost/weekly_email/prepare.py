"""From a request to a week that can be mailed: the checks, and the freeze of its audience."""

from shardpost.settings import Settings
from shardpost.weekly_email.checks import check
from shardpost.weekly_email.ledger_guard import mark_start
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.spark.freeze_audience import freeze


def prepare(request: EmailRequest, settings: Settings) -> PreparedWeek:
    """Return the week with its audience, frozen by this run if the request says so.

    Raises what `check` refuses.
    """
    checked = check(request, settings)
    week = checked.week
    if request.is_real:
        mark_start(settings, request.week, checked.ledger, request.now)
    if request.freezes and not week.frozen:
        return week.with_frozen(freeze(settings, week, request.now))
    return week
