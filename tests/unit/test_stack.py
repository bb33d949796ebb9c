"""The embedded stack: locks, what `up`, `down` and a demo say and leave, the home of Airflow."""

import errno
import logging
import subprocess
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import NoReturn
from unittest.mock import MagicMock

import httpx
import pytest

from shardpost.checkout import CHECKOUT
from shardpost.embedded import airflow, daemons, demo, stack
from shardpost.embedded.airflow import process_environment
from shardpost.embedded.daemons import Daemon
from shardpost.embedded.stack import NOTHING_UP, Part
from shardpost.errors import ShardpostError, UsageError
from shardpost.locks.locks import LockedError, exclusive
from shardpost.run_requests.airflow_api import AirflowApi
from shardpost.settings import Settings
from tests.support.installed import installed


@dataclass(eq=False)
class Service:
    """A part that is not there."""

    is_up: bool
    stopped: list[Settings] = field(default_factory=list)

    def start(self, settings: Settings) -> None:
        raise AssertionError("nothing is started")

    def stop(self, settings: Settings) -> None:
        self.stopped.append(settings)

    def state(self, settings: Settings) -> dict[str, str]:
        return {"state": stack.UP if self.is_up else stack.DOWN}


@pytest.mark.parametrize(("is_up", "said"), [(False, [NOTHING_UP]), (True, ["stopping Kafka"])])
def test_what_was_stopped_is_said_also_if_it_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool, said: list[str]
) -> None:
    services = [Service(is_up), Service(False)]
    parts = [Part(str(n), "Kafka", 1, "", service) for n, service in enumerate(services)]
    monkeypatch.setattr(stack, "_all", lambda _: parts)
    found: list[str] = []
    stack.down(Settings(home=tmp_path), say=found.append)
    assert found == said
    assert all(len(service.stopped) == 1 for service in services)


def test_where_nothing_is_running_the_homes_below_that_are_up_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "_all", lambda _: [Part("1", "Kafka", 1, "", Service(is_up=False))])
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    up, gone = (
        Daemon("kafka", [], {}, tmp_path / "log", tmp_path / name / "kafka" / "kafka.pid")
        for name in ("demo-a b", "demo-2")
    )
    for daemon in (up, gone):
        daemon.pid_file.parent.mkdir(parents=True)
        daemon._remember(process.pid if daemon is up else 2**22)
    found: list[str] = []
    stack.down(Settings(home=tmp_path), say=found.append)
    process.kill()
    process.wait()
    home = tmp_path / "demo-a b"
    assert found == [
        NOTHING_UP,
        f"a stack is up in a folder of it: SHARDPOST_HOME='{home}' shardpost down",
    ]


def test_up_says_of_which_settings_a_running_airflow_has_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Part(stack.AIRFLOW, "Airflow", 1, "", Service(is_up=True))
    monkeypatch.setattr(stack, "_all", lambda _: [part])
    monkeypatch.setattr(stack, "create_topics", lambda _: [])
    settings = Settings(home=tmp_path, kafka={"retries": "5"})
    environ = process_environment(settings) | {airflow.HOME_VARIABLE: str(tmp_path)}
    [scheduler, triggerer, *_] = airflow._daemons(settings, {}).values()
    scheduler.pid_file.parent.mkdir(parents=True)
    with (
        subprocess.Popen(["sleep", "60"], env=environ) as one,
        subprocess.Popen(["sleep", "60"], env={}) as other,  # as one that overwrote what it had
    ):
        scheduler._remember(one.pid)
        triggerer._remember(other.pid)
        found: list[str] = []
        for now in (settings, Settings(home=tmp_path, country="GB", max_drop=0.4)):
            stack.up(now, with_airflow=True, say=found.append)
        one.kill()
        other.kill()
    names = "SHARDPOST_COUNTRY, SHARDPOST_KAFKA__RETRIES, SHARDPOST_MAX_DROP"
    restart = "`shardpost down && shardpost up` takes this one"
    assert found == [f"Airflow runs with another {names}: {restart}"]


def test_a_home_that_cannot_be_written_is_stopped_without_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(is_up=True)
    monkeypatch.setattr(stack, "_all", lambda _: [Part("1", "Kafka", 1, "", service)])

    def read_only(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system", "/home/locks")

    monkeypatch.setattr(stack, "exclusive_here", read_only)
    found: list[str] = []
    stack.down(Settings(home=tmp_path), say=found.append)
    assert found == [
        "/home/locks: Read-only file system: stopping without its lock",
        "stopping Kafka",
    ]
    assert len(service.stopped) == 1


def test_a_pid_file_that_cannot_be_removed_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    daemon = Daemon("x", [], {}, tmp_path / "log", tmp_path / "x.pid")
    daemon._remember(process.pid)
    monkeypatch.setattr(Path, "unlink", MagicMock(side_effect=OSError(errno.EROFS, "read-only")))
    daemon.stop()
    process.wait()
    assert not daemon.alive


def test_a_home_that_does_not_exist_has_nothing_up(tmp_path: Path) -> None:
    found: list[str] = []
    stack.down(Settings(home=tmp_path / "none"), say=found.append)
    assert found == [NOTHING_UP]
    assert not (tmp_path / "none").exists()


def test_who_waits_for_the_lock_says_for_whom_and_how_long_and_does_not_ask_to_wait(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path, lock_wait=30)
    taken, said = threading.Event(), threading.Event()
    lines: list[str] = []

    def hold() -> None:
        with exclusive(installed(settings).files, stack.LOCK, "another `shardpost up` or `down`"):
            taken.set()
            said.wait(20)

    def say(line: str) -> None:
        lines.append(line)
        said.set()

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(20)
    with stack._stack_lock(settings, say):
        holder.join()
    [line] = lines
    assert line.startswith("another `shardpost up` or `down` is already running (pid ")
    assert line.endswith("): waiting up to 30 s for it")
    assert "wait for it" not in line


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
        demo.play(Settings(home=tmp_path), AirflowApi(client), list, NOW, lambda _: None)
    logs = tmp_path / "airflow/logs/dag_id=compact_positions/run_id=manual__1"
    assert str(failed.value) == (
        f"compact_positions: run manual__1 failed: see the logs of its tasks in {logs}"
    )


def test_the_mails_of_a_mailpit_are_read_whole_and_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(asked: httpx.Request) -> httpx.Response:
        if asked.url.path == "/api/v1/messages":
            return httpx.Response(200, json={"messages": [{"ID": "new"}, {"ID": "old"}]})
        return httpx.Response(200, content=f"Subject: {asked.url.path}\n\nHello".encode())

    transport, client = httpx.MockTransport(answer), httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **given: client(transport=transport, **given))
    assert list(demo.kept_by_mailpit("http://mailpit:8025")()) == [
        b"Subject: /api/v1/message/old/raw\n\nHello",
        b"Subject: /api/v1/message/new/raw\n\nHello",
    ]


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
    assert said == [
        f"not finished; {home} is kept, with the logs of all services in {home / 'logs'}"
    ]
    assert (home / "logs").is_dir()


def test_a_demo_whose_registry_ends_with_it_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected --keep or --avro"):
        demo.run_demo(Settings(home=tmp_path), now=NOW, keep=True, avro=True, say=print)
    assert list(tmp_path.iterdir()) == []


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


OF_THE_HOME = {
    "AIRFLOW_HOME": "{}",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:///{}/airflow.db",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": "{}/logs",
    "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": "{}/logs/dag_processor",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": "{}/passwords.json",
}


def test_every_path_of_airflow_is_set_in_its_home_or_in_the_checkout(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", "/of/another/airflow")
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    found = process_environment(settings)
    assert found["AIRFLOW__METRICS__OTEL_ON"] == "True"
    home = settings.home / "airflow"
    assert {name: found[name] for name in OF_THE_HOME} == {
        name: text.format(home) for name, text in OF_THE_HOME.items()
    }
    assert found["AIRFLOW__CORE__DAGS_FOLDER"] == str(CHECKOUT / "dags")
    assert found["AIRFLOW__CORE__PLUGINS_FOLDER"] == str(CHECKOUT / "plugins")


@pytest.mark.parametrize(
    ("left", "after"),
    [(None, "db migrate\n"), (b"", "db migrate\n"), (b"of before", "of before")],
    ids=["no file", "an empty file", "of this version"],
)
def test_a_database_that_is_gone_is_made_again_whatever_was_noted(
    left: bytes | None, after: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = settings.home / "bin"
    programs.mkdir()
    (programs / "airflow").write_text('#!/bin/sh\necho "$@" > "$AIRFLOW_HOME/airflow.db"\n')
    (programs / "airflow").chmod(0o755)
    monkeypatch.setattr(airflow, "BIN", programs)
    home = settings.home / "airflow"
    home.mkdir()
    (home / "migrated-to").write_text(metadata.version("apache-airflow"))
    if left is not None:
        (home / "airflow.db").write_bytes(left)
    airflow.prepare(settings)
    assert (home / "airflow.db").read_text() == after


def test_a_second_holder_is_told_who_has_it_and_a_later_one_gets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardpost.locks.locks")
    settings = Settings(home=tmp_path)
    with exclusive(installed(settings).files, "it", "the job"):
        for wait in (0.0, 0.3):
            with (
                pytest.raises(LockedError, match=r"the job is already running \(pid \d+, since 20"),
                exclusive(installed(settings).files, "it", "the job", wait=wait),
            ):
                pass
    with exclusive(installed(settings).files, "it", "the job"):
        pass
    [said] = [one.getMessage() for one in caplog.records if one.name == "shardpost.locks.locks"]
    assert said.startswith("the job is already running (pid ")
    assert said.endswith("): waiting for it, up to 0.3 s")
