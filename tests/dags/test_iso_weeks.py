"""weekly_email as the scheduler reads it back: of which week a run is, and what params it takes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from airflow.sdk import DAG
from airflow.timetables.base import DataInterval, TimeRestriction
from pendulum import DateTime, instance
from shardpost_iso_weeks import IsoWeeks

from shardpost.weekly_email.model.week import IsoWeek
from tests.dags.conftest import read_back


@pytest.fixture(scope="module")
def dag(bag: Any) -> Any:
    """Give weekly_email as the scheduler has it."""
    return read_back(bag.dags["weekly_email"])


def day(text: str) -> DateTime:
    return instance(datetime.fromisoformat(text).replace(tzinfo=UTC))


def weeks(dag: Any, first: str, last: str) -> list[str]:
    return [str(IsoWeek.of(run.data_interval.start)) for run in backfill(dag, first, last)]


def backfill(dag: Any, first: str, last: str) -> list[Any]:
    return list(dag.iter_dagrun_infos_between(day(first), day(last)))


def test_a_run_is_of_monday_to_monday_and_comes_eight_hours_later(dag: Any) -> None:
    (run,) = backfill(dag, "2026-11-16", "2026-11-22")
    assert run.data_interval == (day("2026-11-16"), day("2026-11-23"))
    assert run.run_after == day("2026-11-23T08:00")


def test_a_backfill_makes_the_weeks_that_start_within_its_dates(dag: Any) -> None:
    assert weeks(dag, "2026-11-16", "2026-11-22") == ["2026-W47"]
    assert weeks(dag, "2026-11-10", "2026-11-22") == ["2026-W47"]
    assert weeks(dag, "2026-11-02", "2026-11-22") == ["2026-W45", "2026-W46", "2026-W47"]
    assert weeks(dag, "2026-11-16", "2026-11-23") == ["2026-W47", "2026-W48"]
    assert weeks(dag, "2026-11-17", "2026-11-22") == []


def test_a_year_may_have_53_weeks(dag: Any) -> None:
    assert weeks(dag, "2020-12-21", "2021-01-11") == [
        "2020-W52",
        "2020-W53",
        "2021-W01",
        "2021-W02",
    ]


def test_summer_time_changes_nothing(dag: Any) -> None:
    first, second = backfill(dag, "2026-03-23", "2026-04-05")
    assert first.data_interval.end == second.data_interval.start == day("2026-03-30")


def test_started_by_hand_it_is_of_the_last_week_that_ended(dag: Any) -> None:
    def of(at: str) -> Any:
        return dag.timetable.infer_manual_data_interval(run_after=day(at))

    assert of("2026-11-22T23:59:59") == (day("2026-11-09"), day("2026-11-16"))
    assert of("2026-11-23T00:00:00") == (day("2026-11-16"), day("2026-11-23"))


def test_after_a_run_comes_the_next_week_and_none_long_gone(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = dag.timetable.infer_manual_data_interval(run_after=day("2026-01-05"))
    every = TimeRestriction(earliest=None, latest=None, catchup=True)
    following = dag.timetable.next_dagrun_info(last_automated_data_interval=last, restriction=every)
    assert following.data_interval == (day("2026-01-05"), day("2026-01-12"))

    monkeypatch.delenv("SHARDPOST_WEEKLY_FIRST")
    newest = TimeRestriction(earliest=None, latest=None, catchup=False)
    first = dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=newest)
    assert IsoWeek.of(first.data_interval.start) == IsoWeek.last_ended(datetime.now(UTC))


@pytest.mark.parametrize(
    ("send", "at", "following"),
    [  # after the run of W46
        ("Fri 18:00", "2026-11-27T18:00", "2026-W47"),
        ("Fri 18:00", "2026-11-30T10:00", "2026-W47"),
        ("Fri 18:00", "2026-11-30T10:01", "2026-W48"),
        ("Sat 08:00", "2026-12-01T00:00", "2026-W47"),
        ("Sat 08:00", "2026-12-01T00:01", "2026-W48"),
        ("Mon 08:00", "2026-11-30T00:00", "2026-W48"),
        ("Mon 08:00", "2026-12-11T00:00", "2026-W49"),
    ],
)
def test_a_week_is_scheduled_until_it_is_too_late_to_be_mailed(
    monkeypatch: pytest.MonkeyPatch, send: str, at: str, following: str
) -> None:
    # Airflow imports the module once more, under the same name.
    own: dict[str, Any] = vars(IsoWeeks)["next_dagrun_info"].__globals__
    monkeypatch.setitem(own, "now", lambda _zone: day(at))
    monkeypatch.setenv("SHARDPOST_WEEKLY_FIRST", "2026-W01")
    monkeypatch.setenv("SHARDPOST_WEEKLY_LATENESS_DAYS", "3")
    last = DataInterval(start=day("2026-11-09"), end=day("2026-11-16"))
    newest = TimeRestriction(earliest=None, latest=None, catchup=False)
    run = IsoWeeks(send).next_dagrun_info(last_automated_data_interval=last, restriction=newest)
    interval = run and run.data_interval
    assert interval is not None
    assert IsoWeek.of(interval.start) == IsoWeek.parse(following)


def test_no_scheduled_run_is_of_a_week_before_the_first(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDPOST_WEEKLY_FIRST", "2099-W01")
    newest = TimeRestriction(earliest=None, latest=None, catchup=False)
    first = dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=newest)
    assert IsoWeek.of(first.data_interval.start) == IsoWeek.parse("2099-W01")
    assert weeks(dag, "2026-11-16", "2026-11-22") == ["2026-W47"]


def test_the_ui_says_when_it_runs(dag: Any) -> None:
    assert dag.timetable.description == "Mondays 08:00 UTC, for the ISO week that has just ended"
    assert dag.timetable.summary == "weekly, Monday 08:00 UTC"


def sent(send: str) -> Any:
    """Return the DAG as the scheduler has it where that is the setting."""
    return read_back(DAG("weekly", schedule=IsoWeeks(send)))


@pytest.mark.parametrize(
    ("send", "winter", "spring", "autumn"),
    [  # Europe's clocks change on 29 March and on 25 October, those of New York on 8 March
        ("Mon 08:00", "12-14T08:00", "03-30T08:00", "10-26T08:00"),
        ("Mon 08:00 Europe/Berlin", "12-14T07:00", "03-30T06:00", "10-26T07:00"),
        ("Sun 22:00 America/New_York", "12-14T03:00", "03-30T02:00", "10-26T02:00"),
        ("Fri 00:00 Asia/Tokyo", "12-17T15:00", "04-02T15:00", "10-29T15:00"),
    ],
)
def test_a_setting_says_when_the_run_of_a_week_starts_in_summer_and_in_winter(
    send: str, winter: str, spring: str, autumn: str
) -> None:
    dag = sent(send)
    for week, start in (("2026-12-07", winter), ("2026-03-23", spring), ("2026-10-19", autumn)):
        (run,) = backfill(dag, week, week)
        assert run.data_interval.start == day(week)
        assert run.run_after == day(f"2026-{start}")


def test_a_dag_that_an_older_release_wrote_runs_at_the_usual_time(dag: Any) -> None:
    assert IsoWeeks.deserialize({}).serialize() == dag.timetable.serialize()
    assert (
        sent("Tue 07:30 Europe/Berlin").timetable.summary == "weekly, Tuesday 07:30 Europe/Berlin"
    )


WEEK, SHARDS = "Invalid input for param week: ", "Invalid input for param shards: "


@pytest.fixture(scope="module")
def params(dag: Any) -> Any:
    """Return the params as the API server reads them back from the database."""
    return dag.params


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"week": "2026-W99"}, f"{WEEK}week 2026-W99: there is no such week in 2026"),
        ({"week": "2025-W53"}, f"{WEEK}week 2025-W53: there is no such week in 2025"),
        ({"week": "W47"}, f"{WEEK}week 'W47': expected an ISO week such as 2026-W47"),
        ({"week": ""}, f"{WEEK}week '': expected an ISO week such as 2026-W47"),
        ({"shards": "x"}, f"{SHARDS}shards 'x': expected a form such as 0-3, 2 or 0,2,5-7"),
        ({"shards": "5-2"}, f"{SHARDS}shards '5-2': expected the lower number first, found 5-2"),
    ],
)
def test_a_typo_is_refused_in_words(params: Any, given: dict[str, object], why: str) -> None:
    with pytest.raises(ParamValidationError) as refused:
        params.deep_merge(given).validate()
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"week": 47}, "param week: 47 is not of type"),
        ({"on_unknown": "send"}, "param on_unknown: 'send' is not one of"),
        ({"again": "failed"}, "param again: 'failed' is not one of"),
        ({"early": "yes"}, "param early: 'yes' is not of type"),
    ],
)
def test_no_other_value_is_taken(params: Any, given: dict[str, object], why: str) -> None:
    with pytest.raises(ParamValidationError, match=why):
        params.deep_merge(given).validate()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"week": None, "shards": None, "dry_run": None, "early": None},
        {"week": "2020-W53", "shards": "0, 2, 5-7", "dry_run": True},
        {"shards": "", "on_unknown": "resend", "again": "SUPPRESSED"},
    ],
)
def test_what_the_job_takes_is_taken(params: Any, given: dict[str, object]) -> None:
    assert params.deep_merge(given).validate().items() >= given.items()
