"""What a demo leaves behind: nothing, or its logs if it fails."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from shardpost.embedded import daemons, demo, stack
from shardpost.errors import ShardpostError
from shardpost.run_requests.airflow_api import AirflowApi
from shardpost.settings import Settings

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
PATH = "/api/v2/dags/compact_positions/dagRuns"


def test_a_failed_run_names_the_folder_of_the_logs_of_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "produce", lambda *_: None)
    answers = {
        PATH: {"dag_run_id": "manual__1"},
        f"{PATH}/manual__1": {"state": "failed"},
        f"{PATH}/manual__1/taskInstances": {"task_instances": []},
    }
    transport = httpx.MockTransport(lambda asked: httpx.Response(200, json=answers[asked.url.path]))
    with (
        httpx.Client(base_url="http://airflow", transport=transport) as client,
        pytest.raises(ShardpostError) as failed,
    ):
        demo.play(Settings(home=tmp_path), AirflowApi(client), NOW, lambda _: None)
    logs = tmp_path / "airflow/logs/dag_id=compact_positions/run_id=manual__1"
    assert str(failed.value) == (
        f"compact_positions: run manual__1 failed: see the logs of its tasks in {logs}"
    )


def test_a_demo_that_fails_stops_its_stack_and_says_that_its_folder_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(settings: Settings, **_: object) -> None:
        (settings.home / "logs").mkdir()
        raise ShardpostError("Kafka cannot be started")

    stopped: list[Path] = []
    said: list[str] = []
    free = iter((10001, 10002, 10003))
    monkeypatch.setattr(daemons, "choose_port", lambda: next(free))
    monkeypatch.setattr(stack, "up", up)
    monkeypatch.setattr(stack, "down", lambda settings, **_: stopped.append(settings.home))
    with pytest.raises(ShardpostError, match="Kafka cannot be started"):
        demo.run_demo(Settings(home=tmp_path), now=NOW, keep=False, say=said.append)
    [home] = tmp_path.glob("demo-*")
    assert stopped == [home]
    assert said == [f"not finished; kept: {home}; what was started has its log in {home / 'logs'}"]
    assert (home / "logs").is_dir()


def test_a_demo_that_is_done_stops_its_stack_and_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def up(settings: Settings, **_: object) -> None:
        assert "use_job_schedule = False" in (settings.home / "airflow/airflow.cfg").read_text()
        done.append("up")

    airflow = {"address": "http://airflow", "user": "admin", "password": "secret"}
    free = iter((10001, 10002, 10003))
    monkeypatch.setattr(daemons, "choose_port", lambda: next(free))
    monkeypatch.setattr(stack, "up", up)
    monkeypatch.setattr(stack, "status", lambda _: {"airflow": airflow})
    monkeypatch.setattr(stack, "down", lambda *_, **__: done.append("down"))
    monkeypatch.setattr(demo, "log_in", lambda *_: nullcontext())
    monkeypatch.setattr(demo, "play", lambda *_: done.append("play"))
    demo.run_demo(Settings(home=tmp_path), now=NOW, keep=False, say=lambda _: None)
    assert done == ["up", "play", "down"]
    assert list(tmp_path.iterdir()) == []
