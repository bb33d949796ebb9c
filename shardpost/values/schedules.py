"""When DAGs run: cron expressions in UTC, and the time of the week at which the send starts."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

COMPACT, SWEEP = "*/15 * * * *", "*/5 * * * *"
WATCH, MAINTAIN = "*/15 * * * *", "0 3 * * SUN"
WEEKLY_SEND = "Mon 08:00 UTC"

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = [day[:3] for day in _DAYS]
_WEEKLY = re.compile(rf"({'|'.join(_SHORT)}) (\d\d):(\d\d)(?: (\S+))?")
_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_WEEK = timedelta(days=7)
_ENDS = (datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 7, 6, tzinfo=UTC))
_MOST_LATE = timedelta(days=6)
_MOST_RUNS = 2000  # of a week that are looked at: more often than that is every five minutes


@dataclass(frozen=True)
class WeeklyTime:
    """A time of the week in a time zone; `weekday` 0 is Monday."""

    weekday: int
    at: time
    zone: str

    @classmethod
    def parse(cls, text: str) -> "WeeklyTime":
        """Parse `Mon 08:00 Europe/Berlin`, in UTC without a zone; ValueError for another text."""
        match = _WEEKLY.fullmatch(text)
        if not match or not (int(match[2]) < 24 and int(match[3]) < 60):
            raise ValueError(
                f"expected one of {', '.join(_SHORT)}, a time and a time zone, such as"
                f" `{WEEKLY_SEND}` or `Tue 07:30 Europe/Berlin`"
            )
        zone = match[4] or "UTC"
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"there is no time zone {zone}: expected one such as America/New_York"
            ) from None
        return cls(_SHORT.index(match[1]), time(int(match[2]), int(match[3])), zone)

    def after(self, end: datetime) -> datetime:
        """Return the first such time, in UTC, that is not before the end of a week.

        A time that a clock shows twice is the first of both; one that it leaves out is as long
        after the change as it would have been without it.
        """
        zone = ZoneInfo(self.zone)
        local = end.astimezone(zone)
        day = local.date() + timedelta(days=(self.weekday - local.weekday()) % 7)
        found = datetime.combine(day, self.at, zone).astimezone(UTC)
        if found < end:
            found = datetime.combine(day + _WEEK, self.at, zone).astimezone(UTC)
        return found

    def later(self, end: datetime) -> timedelta:
        """Return how much later than by default that is, by which what waits for it is late."""
        return max(timedelta(0), self.after(end) - WeeklyTime.parse(WEEKLY_SEND).after(end))

    def __str__(self) -> str:
        return f"{_SHORT[self.weekday]} {self.at:%H:%M} {self.zone}"

    def in_words(self, plural: str = "") -> str:
        """Return it as `Monday 08:00 UTC`."""
        return f"{_DAYS[self.weekday]}{plural} {self.at:%H:%M} {self.zone}"


def weekly_time(text: str) -> str:
    """Check a time of the week; a time shortly before its end would belong to the week before."""
    found = WeeklyTime.parse(text)
    if any(found.after(end) - end >= _MOST_LATE for end in _ENDS):
        raise ValueError(
            "expected a time at which the week has ended (Monday 00:00 UTC), at most six days after"
            " that, in summer and in winter"
        )
    return text


def cron(text: str) -> str:
    """Check a cron expression of five fields, which Airflow takes, and that it is ever time."""
    if text in {COMPACT, SWEEP, WATCH, MAINTAIN}:  # the library takes a while to import
        return text
    from croniter import CroniterError, croniter

    try:
        if len(text.split()) == 5:
            croniter(text, _SOME_TIME).get_next(datetime)
            return text
    except CroniterError:
        pass
    raise ValueError(
        "expected a cron expression of five fields, such as `0 6 * * MON-FRI`; it is in UTC"
    )


def next_run(expression: str, after: datetime) -> datetime:
    """Return when the next run after that time is due."""
    from croniter import croniter

    found: datetime = croniter(expression, after).get_next(datetime)
    return found


@cache
def longest_pause(expression: str) -> timedelta:
    """Return the longest time between two runs of some weeks."""
    if expression in (COMPACT, SWEEP):  # each parse of a DAG asks, and the library is slow
        return timedelta(minutes=15 if expression == COMPACT else 5)
    from croniter import croniter

    times = croniter(expression, _SOME_TIME)
    last, longest = times.get_next(datetime), timedelta(0)
    for _ in range(_MOST_RUNS):
        found = times.get_next(datetime)
        longest, last = max(longest, found - last), found
        if last > _SOME_TIME + 2 * _WEEK:
            break
    return longest


def longest_wait(expression: str) -> timedelta:
    """Return how long a DAG's work may wait, given its configured schedule."""
    return max(timedelta(hours=1), longest_pause(expression) + timedelta(minutes=30))
