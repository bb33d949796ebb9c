"""dispatch_run_requests: when it runs, and what its task does."""

from datetime import datetime
from typing import Any

import pytest
from airflow.timetables.assets import AssetOrTimeSchedule

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.run_requests import dispatch as module
from shardpost.run_requests.model.commands import DispatchCounts
from tests.dags.conftest import read_back


def test_it_runs_when_a_request_waits_and_every_five_minutes(dag: Any) -> None:
    timetable = read_back(dag).timetable
    assert isinstance(timetable, AssetOrTimeSchedule)
    assert "*/5 * * * *" in timetable.timetable.summary
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert watcher.trigger.serialize() == ("run_request_watch.RunRequestWatch", {})


def test_its_result_is_what_was_done_and_airflow_is_this_one(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def dispatch(installation: Installation, _now: datetime) -> DispatchCounts:
        settings = installation.settings
        seen.append((settings.airflow_url, settings.airflow_user))
        return DispatchCounts(issued=2, started=2)

    monkeypatch.setattr(module, "dispatch", dispatch)
    run = dag.test()
    assert run.state == "success"
    assert seen == [("http://127.0.0.1:8080", "admin")]
    (task,) = run.get_task_instances()
    assert task.xcom_pull(task_ids="dispatch")["issued"] == 2


def test_what_could_not_be_started_fails_the_task(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dispatch(_installation: Installation, _now: datetime) -> DispatchCounts:
        raise ShardpostError("1 command is committed and not started")

    monkeypatch.setattr(module, "dispatch", dispatch)
    monkeypatch.setattr(dag.task_dict["dispatch"], "retries", 0)
    assert dag.test().state == "failed"
