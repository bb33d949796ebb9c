"""watch_kafka: when it runs, and what its task does; the metrics of the API server."""

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.api_fastapi.app import create_app
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from fastapi.testclient import TestClient

from shardpost.alerts.channels import Delivery
from shardpost.alerts.model.alert import Alert, AlertState
from shardpost.checkout import CHECKOUT
from shardpost.settings import Settings, loading
from shardpost.watch import open_metrics
from shardpost.watch import watch as module
from shardpost.watch.model.found import Found
from shardpost.watch.model.rules import SNAPSHOT_AGE
from tests.support.open_metrics import metric_families

PATH = "/shardpost/metrics"


@pytest.fixture
def dag(database: None) -> Any:
    return DagBag(dag_folder=CHECKOUT / "dags" / "watch_kafka.py").dags["watch_kafka"]


def test_it_runs_every_quarter_of_an_hour(dag: Any) -> None:
    read_back = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert read_back.timetable.summary == "*/15 * * * *"


def test_a_run_that_finds_something_is_a_success(dag: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(_settings: Settings, now: datetime) -> module.Watched:
        assert now.tzinfo == UTC
        found = Found()
        found.measure("snapshot_number", 7)
        found.conditions.append(SNAPSHOT_AGE.broken("", "too old"))
        alert = Alert(AlertState.FIRING, found.conditions[0], now)
        return module.Watched(found, [alert], [Delivery("1: JSON", "it is down")])

    monkeypatch.setattr(module, "watch", watch)
    run = dag.test()
    assert run.state == "success"
    (task,) = run.get_task_instances()
    assert task.xcom_pull(task_ids="watch") == {"values": 1, "alerts": 1}


@pytest.fixture(scope="module")
def client(database: None) -> TestClient:
    """Airflow's API server, with our plugins."""
    return TestClient(create_app(apps="core"))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """Give when everything was measured."""
    seen: list[datetime] = []

    def look(_settings: Settings, now: datetime) -> Found:
        seen.append(now)
        found = Found()
        found.measure("snapshot_number", 7)
        return found

    monkeypatch.setattr(open_metrics, "look", look)
    return seen


def get(client: TestClient, authorization: str) -> Any:
    return client.get(PATH, headers={"Authorization": authorization.encode()})


def test_without_a_token_in_the_settings_nothing_is_served(
    client: TestClient, looks: list[datetime]
) -> None:
    answer = get(client, "Bearer ")
    assert answer.status_code == 403
    assert "SHARDPOST_METRICS_TOKEN" in answer.json()["detail"]
    assert not looks


def test_who_has_the_token_reads_the_metrics(
    client: TestClient, looks: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDPOST_METRICS_TOKEN", "a-token")
    loading._of_this_process.cache_clear()
    for wrong in ("", "Bearer", "Bearer b-token", "a-token", "Bearer ü"):
        answer = get(client, wrong)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert not looks
    right = get(client, "Bearer a-token")
    assert right.status_code == 200
    assert right.headers["Content-Type"].startswith("application/openmetrics-text")
    assert metric_families(right.text)["shardpost_snapshot_number"].samples[0].value == 7
    get(client, "Bearer a-token")
    assert len(looks) == 1  # the second was given what the first one was given
