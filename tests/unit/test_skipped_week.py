"""Which weeks a scheduled run leaves out, by the tables that are there."""

from datetime import timedelta
from pathlib import Path

from shardpost.settings import Settings
from shardpost.weekly_email.email_run import why_skip
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.email_request import EmailRequest, Mode
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek

WEEK = IsoWeek(2026, 47)


def test_a_week_that_is_frozen_goes_on_however_late_its_scheduled_run_is_cleared(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path)
    late = WEEK.end + timedelta(days=30)
    request = EmailRequest(WEEK, late, Mode.FREEZE, is_scheduled=True)
    assert why_skip(request, settings) is not None
    frozen = FrozenWeek(str(WEEK), 1, WEEK.end, WEEK.end, 1, 8, 1000, "US")
    FrozenWeeks(settings).commit(frozen)
    assert why_skip(request, settings) is None
