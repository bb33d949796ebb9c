"""watch_kafka: when it runs, and what its task does; the metrics of the API server."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient

from shardpost.alerts.channels import Delivery
from shardpost.alerts.model.alert import Alert, AlertState
from shardpost.alerts.notifier import Notified
from shardpost.embedded.daemons import wait_until
from shardpost.installation import Installation
from shardpost.settings import Declared, loading
from shardpost.watch import watch as module
from shardpost.watch.model.conditions import EMAILS_UNKNOWN, SNAPSHOT_AGE, Observations
from tests.dags.conftest import read_back
from tests.support.open_metrics import metric_families

PATH = "/shardpost/metrics"


def test_it_runs_every_quarter_of_an_hour(dag: Any) -> None:
    assert read_back(dag).timetable.summary == "*/15 * * * *"


def test_a_run_that_finds_something_is_a_success_and_names_no_client(
    dag: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def watch(_installation: Installation, now: datetime) -> module.Watched:
        assert now.tzinfo == UTC
        found = Observations()
        found.measure("snapshot_number", 7)
        found.conditions.append(SNAPSHOT_AGE.broken("", "too old"))
        found.conditions.append(EMAILS_UNKNOWN.broken("2026-W47", "1 client: acme", "1 client"))
        alert = Alert(AlertState.FIRING, found.conditions[0], now)
        return module.Watched(found, Notified([alert], [Delivery("1: JSON", "it is down")]))

    monkeypatch.setattr(module, "watch_once", watch)
    run = dag.test()
    assert run.state == "success"
    (task,) = run.get_task_instances()
    assert task.xcom_pull(task_ids="watch") == {"values": 1, "alerts": 1}
    assert "snapshot-age: too old" in caplog.text
    assert "emails-unknown of 2026-W47: 1 client" in caplog.text
    assert "acme" not in caplog.text


@pytest.fixture(scope="module")
def client(database: None) -> TestClient:
    """Airflow's API server, with our plugins."""
    return TestClient(create_app(apps="core"))


@pytest.fixture
def app(client: TestClient) -> Any:
    """Give the app of ours."""
    server: Any = client.app
    [mounted] = [route for route in server.routes if getattr(route, "path", "") == "/shardpost"]
    return mounted.app


@pytest.fixture
def names(app: Any) -> dict[str, Any]:
    """Give the names of the module of the app, as Airflow has loaded it."""
    found: dict[str, Any] = app.routes[0].endpoint.__globals__
    return found


@pytest.fixture
def looks(app: Any, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a command in the place of `shardpost`; return the file to which it adds its arguments."""
    calls, command = tmp_path / "calls", tmp_path / "shardpost"
    calls.touch()
    family = "# TYPE shardpost_snapshot_number gauge\\nshardpost_snapshot_number 7\\n# EOF\\n"
    command.write_text(f"#!/bin/sh\necho $* >> {calls}\nprintf '{family}'\n")
    command.chmod(0o755)
    monkeypatch.setitem(names, "COMMAND", (str(command), "metrics"))
    monkeypatch.setitem(app.state._state, "measured", names["_Measured"](Declared()))
    return calls


def get(client: TestClient, authorization: str) -> Any:
    return client.get(PATH, headers={"Authorization": authorization.encode()})


def test_the_token_may_be_a_variable_of_airflow(
    client: TestClient, looks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHARDPOST_METRICS_TOKEN", raising=False)
    monkeypatch.setenv("AIRFLOW_VAR_SHARDPOST_METRICS_TOKEN", "b-token")
    assert get(client, "Bearer a-token").status_code == 401
    assert get(client, "Bearer b-token").status_code == 200


def test_without_a_token_in_the_settings_nothing_is_served(client: TestClient, looks: Path) -> None:
    answer = get(client, "Bearer ")
    assert answer.status_code == 403
    assert "SHARDPOST_METRICS_TOKEN" in answer.json()["detail"]
    assert looks.read_text() == ""


def test_a_request_without_a_token_asks_no_secrets_backend(
    client: TestClient, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def secrets_of(*_: object) -> None:
        raise AssertionError("the secrets backend is asked")

    monkeypatch.setitem(names, "secrets_of", secrets_of)
    monkeypatch.delenv("SHARDPOST_METRICS_TOKEN", raising=False)
    for answer in (client.get(PATH), get(client, ""), get(client, "Basic a-token")):
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_who_has_the_token_reads_the_metrics(
    client: TestClient, looks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDPOST_METRICS_TOKEN", "a-token")
    loading._of_this_process.cache_clear()
    for wrong in ("", "Bearer", "Bearer b-token", "a-token", "Basic a-token", "Bearer ü"):
        answer = get(client, wrong)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert looks.read_text() == ""
    right = get(client, "bearer a-token")
    assert right.status_code == 200
    assert right.headers["Content-Type"].startswith("application/openmetrics-text")
    assert metric_families(right.text)["shardpost_snapshot_number"].samples[0].value == 7
    get(client, "Bearer a-token")
    assert looks.read_text() == "metrics\n"  # the second was given what the first one was given


def test_the_metrics_are_of_the_kafka_that_a_connection_names(
    client: TestClient, looks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDPOST_METRICS_TOKEN", "a-token")
    monkeypatch.delenv("SHARDPOST_BOOTSTRAP_SERVERS")
    connection = '{"conn_type":"kafka","extra":{"bootstrap.servers":"b1.example:9092"}}'
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", connection)
    command = looks.with_name("shardpost")
    command.write_text('#!/bin/sh\necho "$SHARDPOST_BOOTSTRAP_SERVERS" >&2; exit 1\n')
    assert get(client, "Bearer a-token").json()["detail"].endswith(": b1.example:9092")


def test_what_cannot_be_measured_ends_no_server(
    client: TestClient,
    app: Any,
    names: dict[str, Any],
    looks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHARDPOST_METRICS_TOKEN", "a-token")
    loading._of_this_process.cache_clear()
    for script, why in (("kill -SEGV $$", "it ended with -11"), ("echo no >&2; exit 1", "no")):
        looks.with_name("shardpost").write_text(f"#!/bin/sh\n{script}\n")
        monkeypatch.setitem(app.state._state, "measured", names["_Measured"](Declared()))
        answer = get(client, "Bearer a-token")
        assert answer.status_code == 503
        assert answer.json()["detail"] == f"`shardpost metrics`: {why}"


def test_a_failure_is_not_measured_again_for_each_who_asks_and_nobody_waits_for_another(
    client: TestClient,
    app: Any,
    names: dict[str, Any],
    looks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHARDPOST_METRICS_TOKEN", "a-token")
    loading._of_this_process.cache_clear()
    gate = looks.with_name("gate")
    os.mkfifo(gate)
    command = looks.with_name("shardpost")
    command.write_text(f"#!/bin/sh\necho $* >> {looks}\nread x < {gate}\necho no >&2; exit 1\n")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(get, client, "Bearer a-token")
        wait_until(lambda: bool(looks.read_text()), "a measurement", 10.0)
        others = [get(client, "Bearer a-token") for _ in range(40)]  # each at once
        gate.write_text("go\n")
        failed = first.result()
    assert {one.status_code for one in [failed, *others]} == {503}
    assert {one.json()["detail"].rpartition(": ")[2] for one in others} == {"ask again"}
    assert failed.json()["detail"] == "`shardpost metrics`: no"
    assert get(client, "Bearer a-token").json() == failed.json()
    assert looks.read_text() == "metrics\n"
