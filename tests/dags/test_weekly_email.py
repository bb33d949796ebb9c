"""weekly_email: the arguments of its jobs, and how its runs end."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from shardpost.errors import UsageError
from shardpost.spark.job import document_of
from shardpost.weekly_email.model.week import IsoWeek
from tests.dags.conftest import StandIn

AT = datetime(2026, 11, 25, 9, 30, tzinfo=UTC)
MONDAY, LAST_MONDAY, THIS_MONDAY = (datetime(2026, 11, day, tzinfo=UTC) for day in (9, 16, 23))
AS_DECLARED = {
    "week": None,
    "shards": None,
    "dry_run": False,
    "on_unknown": None,
    "again": None,
    "early": False,
    "country_changed": False,
    "accept_drop": False,
}
FROZEN = {"week": "2026-W46", "shards": 8, "groups": ["0-3", "4-7"], "skipped": None}


def run_of(
    run_type: str, start: datetime | None = None, conf: dict[str, object] | None = None
) -> SimpleNamespace:
    return SimpleNamespace(run_type=run_type, run_after=AT, data_interval_start=start, conf=conf)


def asked(dag: Any, run: SimpleNamespace, **params: object) -> dict[str, Any]:
    """Return the document that the job `freeze` is given, but for its mode."""
    context = {"dag_run": run, "params": AS_DECLARED | params}
    request = dag.task_dict["freeze"].request_of(context, AT)
    found: dict[str, Any] = json.loads(document_of(request, with_now=False))
    assert found.pop("mode") == ("list groups" if params.get("dry_run") else "freeze")
    return found


def groups(dag: Any, as_of: str, **params: object) -> list[Any]:
    """Return the documents that the jobs `send` are given."""
    made = dag.task_dict["groups"].python_callable(
        FROZEN | {"as_of": as_of}, params=AS_DECLARED | params
    )
    return [json.loads(one["request"]) for one in made]


EARLY = {"week": "2026-W48", "early": True}


@pytest.mark.parametrize(
    ("run", "params", "request_"),
    [
        # By hand of the week that it is given, or else of the last that ended.
        (run_of("manual", MONDAY), {"week": "2020-W53"}, {"week": "2020-W53"}),
        (run_of("manual"), {}, {"week": "2026-W47"}),
        # A backfill is of its interval; only a scheduled run may skip its week.
        (run_of("backfill", MONDAY), {}, {"week": "2026-W46"}),
        (run_of("scheduled", MONDAY), {}, {"week": "2026-W46", "is_scheduled": True}),
        # An early run by hand is of the week still running.
        (run_of("manual", LAST_MONDAY), {"early": True}, EARLY),
        (run_of("manual", LAST_MONDAY), {"early": True, "week": "2026-W48"}, EARLY),
        (run_of("backfill", THIS_MONDAY), {"early": True}, EARLY),
        (
            run_of("manual"),
            {"shards": "0-3", "dry_run": True, "on_unknown": "resend", "again": "FAILED"} | EARLY,
            {"recipients": "/dev/stdout", "shards": "0-3", "on_unknown": "resend"}
            | {"again": "FAILED"}
            | EARLY,
        ),
    ],
)
def test_a_run_freezes_its_own_week_by_its_params(
    dag: Any, run: SimpleNamespace, params: dict[str, object], request_: dict[str, object]
) -> None:
    assert asked(dag, run, **params) == request_


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (
            {"week": "2026-W47", "early": True},
            "2026-W47 ended .* --early is for a week still running",
        ),
        ({"week": "2026-W48"}, "2026-W48 has not ended: it ends 2026-11-30"),
        ({"week": "2026-W49", "early": True}, "2026-W49 has not begun: it starts 2026-11-30"),
    ],
)
def test_what_can_only_be_refused_is_refused_before_a_job_is_started(
    dag: Any, params: dict[str, object], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        asked(dag, run_of("manual"), **params)


def test_a_refusal_names_the_param_that_a_form_has(dag: Any, alerts: Path) -> None:
    week = IsoWeek.of(datetime.now(UTC))
    assert dag.test(run_conf={"week": str(week)}).state == "failed"
    said = alerts.read_text()
    assert f": week {week} has not ended: " in said
    assert "; param early mails it as of now" in said


@pytest.mark.parametrize("run_type", ["manual", "scheduled", "backfill"])
def test_a_run_that_is_cleared_or_waited_long_is_checked_by_the_time_it_runs(
    dag: Any, run_type: str
) -> None:
    assert "now" not in asked(dag, run_of(run_type, MONDAY), early=False)
    assert all("now" not in one for one in groups(dag, AT.isoformat(), early=True))


def test_all_shards_of_an_early_run_are_as_of_one_instant(dag: Any) -> None:
    as_of = "2026-11-25T09:15:00+00:00"
    early = {"week": "2026-W46", "early": True, "as_of": "2026-11-25T09:15:00Z"}
    early |= {"is_part": True}
    assert groups(dag, as_of, early=True) == [
        early | {"shards": "0-3"},
        early | {"shards": "4-7"},
    ]


def test_names_in_a_message_cannot_steer_a_terminal(dag: Any) -> None:
    with pytest.raises(AirflowFailException) as failure:
        dag.task_dict["report"].python_callable(FROZEN, [{"unknown": ["evil\x1b[2J\n"]}])
    assert r"1 unknown: 'evil\x1b[2J\n'." in str(failure.value)


def test_each_group_of_shards_becomes_a_task_of_its_name(dag: Any) -> None:
    made = dag.task_dict["groups"].python_callable(FROZEN, params=AS_DECLARED)
    shared = '{"week":"2026-W46","shards":"%s","is_part":true}'
    assert made == [
        {"request": shared % "0-3", "part": "shards 0-3"},
        {"request": shared % "4-7", "part": "shards 4-7"},
    ]


def test_a_week_that_is_skipped_says_why(dag: Any) -> None:
    why = "no snapshot was committed before week 2026-W46 ended"
    with pytest.raises(AirflowSkipException, match=why):
        dag.task_dict["groups"].python_callable(FROZEN | {"skipped": why})


def test_unknown_deliveries_fail_the_run_with_the_command_that_resolves_them(dag: Any) -> None:
    sent = [{"shards": [], "unknown": ["client7"]}, {"shards": [], "unknown": []}]
    with pytest.raises(AirflowFailException) as failure:
        dag.task_dict["report"].python_callable(FROZEN, sent)
    assert "2026-W46: 1 unknown: client7." in str(failure.value)
    assert "`shardpost email --week 2026-W46 --on-unknown resend`" in str(failure.value)


def test_a_week_that_was_paused_fails_the_run_with_how_to_go_on(dag: Any) -> None:
    paused = {"at": AT.isoformat(), "who": "bob", "why": "a wrong price"}
    sent = [{"shards": [], "unknown": []}, {"shards": [], "unknown": [], "paused": paused}]
    with pytest.raises(AirflowFailException) as failure:
        dag.task_dict["report"].python_callable(FROZEN, sent)
    said = f"2026-W46 was paused on {AT:%Y-%m-%d %H:%M} UTC by bob (a wrong price): the remaining"
    assert said in str(failure.value)
    assert "`shardpost emails resume --week 2026-W46 --why …`" in str(failure.value)


def test_too_many_failed_clients_fail_the_run_with_what_to_do(
    dag: Any, caplog: pytest.LogCaptureFixture
) -> None:
    counts = {"sent": 10, "failed": 3, "unknown": 0, "suppressed": 0, "open": 0}
    failed = [{"reason": "550 no such user", "count": 3, "clients": ["c1", "c2", "c3"]}]
    groups = [
        {"shards": [{"shard": n, **counts}], "unknown": [], "causes": {"failed": failed}}
        for n in (0, 4)
    ]
    report = dag.task_dict["report"].python_callable
    report(FROZEN, groups[:1])
    assert 'failed: 3 with "550 no such user" (c1, c2, c3)' in caplog.text
    with pytest.raises(AirflowFailException) as failure:
        report(FROZEN, groups)
    assert "2026-W46: 6 of 26 clients failed" in str(failure.value)
    assert '6 with "550 no such user" (c1, c2, c3, …)' in str(failure.value)
    assert "`shardpost emails --week 2026-W46 --state failed` lists them" in str(failure.value)
    assert "`shardpost email --week 2026-W46 --again FAILED`" in str(failure.value)


def test_a_report_begins_with_the_counts_of_all_shards(
    dag: Any, caplog: pytest.LogCaptureFixture
) -> None:
    counts = {"sent": 5, "failed": 1, "unknown": 0, "suppressed": 2, "open": 0}
    groups = [{"shards": [{"shard": n, **counts}], "unknown": []} for n in (0, 4)]
    with caplog.at_level("INFO"):
        dag.task_dict["report"].python_callable(FROZEN, groups)
    first, failed = [record.getMessage() for record in caplog.records]
    assert first == "2026-W46: 10 sent, 2 failed, 0 unknown, 4 suppressed, 0 open"
    assert failed.startswith("2026-W46: failed: 2; `shardpost emails --week 2026-W46 --state fail")


def test_a_dry_run_has_nothing_to_report(dag: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        dag.task_dict["report"].python_callable(FROZEN, [{"week": "2026-W46", "snapshot": 1}])
    assert [record.getMessage() for record in caplog.records] == ["2026-W46: nothing was sent"]


def test_a_dry_run_fails_with_why_the_run_itself_would_be_refused(dag: Any) -> None:
    frozen = FROZEN | {
        "would_be_refused": "week 2026-W46 after 2026-W45: recipients fall from 12 to 0"
    }
    with pytest.raises(AirflowFailException, match=r"be refused: .* recipients fall from 12 to 0"):
        dag.task_dict["report"].python_callable(frozen, [{"week": "2026-W46", "snapshot": 1}])


def test_a_group_that_fails_fails_the_run_and_is_named_and_the_others_go_on(
    dag: Any, stand_in: StandIn, alerts: Path
) -> None:
    calls = stand_in(
        {
            "freeze": [0, FROZEN],
            "0-3": [2, "shards do not fit"],
            "4-7": [3, {"shards": [], "unknown": ["client7"]}],
        }
    )
    run = dag.test(run_conf={"week": "2020-W46"}, mark_success_pattern="wait")

    assert run.state == "failed"
    states = {
        (task.task_id, task.rendered_map_index): task.state for task in run.get_task_instances()
    }
    assert states == {
        ("wait", None): "success",
        ("freeze", None): "success",
        ("groups", None): "success",
        ("send", "shards 0-3"): "failed",
        ("send", "shards 4-7"): "success",
        ("report", None): "upstream_failed",
    }
    said = "send (shards 0-3), attempt 1: weekly_email ended with 2: shards do not fit"
    assert said in alerts.read_text()
    first, *others = [json.loads(line) for line in calls.read_text().splitlines()]
    assert first == {"week": "2020-W46", "mode": "freeze"}
    assert sorted(one["shards"] for one in others) == ["0-3", "4-7"]
