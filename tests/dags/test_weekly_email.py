"""weekly_email: the arguments of its jobs, and how its runs end."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from shardpost.checkout import CHECKOUT

AT = datetime(2026, 11, 25, 9, 30, tzinfo=UTC)
MONDAY = datetime(2026, 11, 9, tzinfo=UTC)
AS_DECLARED = {
    "week": None,
    "shards": None,
    "dry_run": False,
    "on_unknown": None,
    "early": False,
}
FROZEN = {"week": "2026-W46", "shards": 8, "groups": ["0-3", "4-7"], "skipped": None}


@pytest.fixture(scope="module")
def dag(database: None) -> Any:
    return DagBag(dag_folder=CHECKOUT / "dags").dags["weekly_email"]


def run_of(run_type: str, start: datetime | None = None) -> SimpleNamespace:
    return SimpleNamespace(run_type=run_type, run_after=AT, data_interval_start=start)


def asked(dag: Any, run: SimpleNamespace, **params: object) -> list[str]:
    context = {"dag_run": run, "params": AS_DECLARED | params}
    found: list[str] = dag.task_dict["freeze"].arguments(context=context, jinja_env=None)
    return found


def test_a_run_by_hand_is_of_the_week_that_it_is_given(dag: Any) -> None:
    assert asked(dag, run_of("manual", MONDAY), week="2020-W53") == [
        *("--freeze-only", "--week", "2020-W53")
    ]


def test_a_run_by_hand_without_a_week_is_of_the_last_that_ended(dag: Any) -> None:
    assert asked(dag, run_of("manual")) == ["--freeze-only", "--week", "2026-W47"]


def test_a_backfill_is_of_its_interval_and_never_skips(dag: Any) -> None:
    assert asked(dag, run_of("backfill", MONDAY)) == ["--freeze-only", "--week", "2026-W46"]


def test_only_a_scheduled_run_may_skip_its_week(dag: Any) -> None:
    assert asked(dag, run_of("scheduled", MONDAY)) == [
        *("--freeze-only", "--week", "2026-W46", "--scheduled-at", AT.isoformat())
    ]


def test_the_params_reach_the_job(dag: Any) -> None:
    given = {"shards": "0-3", "dry_run": True, "on_unknown": "resend", "early": True}
    assert asked(dag, run_of("manual"), **given) == [
        *("--freeze-only", "--week", "2026-W47", "--shards", "0-3"),
        *("--early", "--now", AT.isoformat(), "--dry-run", "--recipients", "/dev/stdout"),
        *("--on-unknown", "resend"),
    ]


def test_each_group_of_shards_becomes_a_task_of_its_name(dag: Any) -> None:
    made = dag.task_dict["groups"].python_callable(
        FROZEN, params=AS_DECLARED, dag_run=run_of("manual")
    )
    shared = ["--week", "2026-W46", "--groups", "2"]
    assert made == [
        {"arguments": ["--shards", "0-3", *shared], "part": "shards 0-3"},
        {"arguments": ["--shards", "4-7", *shared], "part": "shards 4-7"},
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


def test_a_dry_run_has_nothing_to_report(dag: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        dag.task_dict["report"].python_callable(FROZEN, [{"week": "2026-W46", "snapshot": 1}])
    assert [record.getMessage() for record in caplog.records] == ["2026-W46: nothing was sent"]


def test_a_group_that_fails_fails_the_run_and_is_named_and_the_others_go_on(
    dag: Any,
    stand_in: Callable[[dict[str, list[object]]], Path],
    task_environment: Path,
) -> None:
    calls = stand_in(
        {
            "--freeze-only": [0, FROZEN],
            "0-3": [2, "shards do not fit"],
            "4-7": [3, {"shards": [], "unknown": ["client7"]}],
        }
    )
    run = dag.test(run_conf={"week": "2026-W46"})

    assert run.state == "failed"
    states = {
        (task.task_id, task.rendered_map_index): task.state for task in run.get_task_instances()
    }
    assert states == {
        ("freeze", None): "success",
        ("groups", None): "success",
        ("send", "shards 0-3"): "failed",
        ("send", "shards 4-7"): "success",
        ("report", None): "upstream_failed",
    }
    alerts = (task_environment / "alerts.log").read_text()
    assert "send (shards 0-3), attempt 1: weekly_email ended with 2: shards do not fit" in alerts
    first, *groups = [json.loads(line)[:3] for line in calls.read_text().splitlines()]
    assert first == ["--freeze-only", "--week", "2026-W46"]
    assert sorted(groups) == [["--shards", "0-3", "--week"], ["--shards", "4-7", "--week"]]
