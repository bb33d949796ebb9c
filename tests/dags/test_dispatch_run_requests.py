"""dispatch_run_requests: when it runs, and what its task does."""

from datetime import datetime
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.assets import AssetOrTimeSchedule

from shardpost.checkout import CHECKOUT
from shardpost.errors import ShardpostError
from shardpost.run_requests import dispatch as module
from shardpost.run_requests.model.commands import DispatchCounts
from shardpost.settings import Settings


@pytest.fixture
def dag(database: None) -> Any:
    return DagBag(dag_folder=CHECKOUT / "dags" / "dispatch_run_requests.py").dags[
        "dispatch_run_requests"
    ]


def test_it_runs_when_a_request_waits_and_every_five_minutes(dag: Any) -> None:
    read_back = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert isinstance(read_back.timetable, AssetOrTimeSchedule)
    assert "*/5 * * * *" in read_back.timetable.timetable.summary
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert watcher.trigger.serialize() == ("run_request_watch.RunRequestWatch", {})


def test_its_result_is_what_was_done_and_airflow_is_this_one(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def dispatch(settings: Settings, _now: datetime) -> DispatchCounts:
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
    def dispatch(_settings: Settings, _now: datetime) -> DispatchCounts:
        raise ShardpostError("1 commands are committed and not started")

    monkeypatch.setattr(module, "dispatch", dispatch)
    dag.task_dict["dispatch"].retries = 0
    assert dag.test().state == "failed"
