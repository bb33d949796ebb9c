"""The timetable of weekly_email: one run per ISO week, by default Monday 08:00 UTC after it ended.

Airflow imports this file as the module `shardpost_iso_weeks`, for DAGs, scheduler and UI alike.
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from pendulum import UTC, DateTime, instance, now

from shardpost.errors import UsageError
from shardpost.settings import declared, one
from shardpost.values.schedules import WEEKLY_SEND, WeeklyTime
from shardpost.weekly_email.model.week import IsoWeek


class IsoWeeks(Timetable):
    """Data interval: Monday 00:00 UTC to the next Monday 00:00 UTC; the run starts at `send`.

    By default eight hours later: the records of Sunday evening have been compacted by then.
    """

    def __init__(self, send: str = WEEKLY_SEND, installation: str = "") -> None:
        self._send = WeeklyTime.parse(send)
        self._installation = installation
        self.description = f"{self._send.in_words('s')}, for the ISO week that has just ended"

    def serialize(self) -> dict[str, Any]:
        """Return from what Airflow's database makes it again."""
        named = {"installation": self._installation} if self._installation else {}
        return {"send": str(self._send), **named}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "IsoWeeks":
        """Return what was serialized."""
        return cls(**data)

    @property
    def summary(self) -> str:
        """What the UI shows as the schedule."""
        return f"weekly, {self._send.in_words()}"

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Return the last week that had ended."""
        return _interval(IsoWeek.last_ended(run_after))

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the week after the last; without catch-up none that is too late to be mailed."""
        if self._installation and WeeklyTime.parse(self._setting("weekly_send")) != self._send:
            raise UsageError(
                f"SHARDPOST_WEEKLY_SEND is no longer {self._send}: parse the DAG again"
            )
        weeks = []
        if last_automated_data_interval is not None:
            weeks.append(IsoWeek.of(last_automated_data_interval.end))
        if restriction.earliest is not None:
            weeks.append(_first_from(restriction.earliest))
        if not restriction.catchup:
            weeks = [self._first_in_time([*weeks, *self._first_of_all()], now(UTC))]
        if not weeks:
            return None
        interval = _interval(max(weeks))
        if restriction.latest is not None and interval.start > restriction.latest:
            return None
        return DagRunInfo(
            run_after=instance(self._send.after(interval.end)), data_interval=interval
        )

    def _first_in_time(self, weeks: list[IsoWeek], at: DateTime) -> IsoWeek:
        """Return the first week from the latest of these on that is not too late.

        That is the last week that ended, where none is known or all that ended are too late: an
        older one could not be backfilled beside its scheduled run.
        """
        ended, days = IsoWeek.last_ended(at), self._setting("weekly_lateness_days")
        week = max(weeks, default=ended)
        while week < ended and week.is_too_late(at, days, self._send.later(week.end)):
            week = week.next
        return week

    def _first_of_all(self) -> list[IsoWeek]:
        """Return the week before which no run is scheduled, if a setting names one."""
        first = self._setting("weekly_first")
        return [IsoWeek.parse(first)] if first else []

    def _setting(self, field: str) -> Any:
        """Return a setting of the installation; UsageError, and so no next run, if it is wrong.

        A default in its place could mail a week that is excluded, or a day early.
        """
        return one(field, declared(self._installation).environ())


def _first_from(earliest: DateTime) -> IsoWeek:
    """Return the first week that does not start before that time."""
    week = IsoWeek.of(earliest)
    return week if week.start == earliest else week.next


def _interval(week: IsoWeek) -> DataInterval:
    return DataInterval(start=instance(week.start), end=instance(week.end))


class IsoWeeksPlugin(AirflowPlugin):
    """Lets Airflow find the timetable by its name when it reads a DAG back from its database."""

    name = "shardpost_iso_weeks"
    timetables = [IsoWeeks]  # noqa: RUF012 - declared so by Airflow
