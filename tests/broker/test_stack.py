"""`up`, `down` and `status` as a user calls them, without Airflow."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardpost.embedded import broker, sink, stack
from shardpost.embedded.daemons import wait_until
from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings import Settings, load
from shardpost.topics.declared import STARTER_COUNTRIES

SHARDPOST = Path(sys.executable).parent / "shardpost"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def settings(stack_environ: dict[str, str]) -> Settings:
    return load(stack_environ)


@pytest.fixture
def run(stack_environ: dict[str, str], settings: Settings) -> Iterator[Run]:
    """Run a command on a stack of this test's own; what it left up is taken down."""

    def command(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | stack_environ | more
        return subprocess.run(
            [str(SHARDPOST), *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    yield command
    stack.down(settings, say=lambda _: None)


def states(run: Run) -> dict[str, str]:
    found: dict[str, dict[str, str]] = json.loads(run("status", "--json").stdout)
    return {name: part["state"] for name, part in found.items()}


def pid_of(settings: Settings, part: str) -> int:
    path = {"kafka": "kafka/kafka.pid", "smtp": "run/smtp.pid"}[part]
    identity: dict[str, Any] = json.loads((settings.home / path).read_text())
    return int(identity["pid"])


def exchanges_in(settings: Settings) -> set[str]:
    topic = settings.topic("exchanges")
    count = partition_counts(settings, [topic])[topic]
    found = [read_to_end(settings, TopicPartition(topic, partition)) for partition in range(count)]
    return {(message.key() or b"").decode() for messages in found for message in messages}


def test_up_and_down_can_be_called_again_and_what_was_there_stays(
    run: Run, settings: Settings
) -> None:
    first = run("up", "--no-airflow")
    assert first.returncode == 0, first.stderr
    assert f"127.0.0.1:{settings.kafka_port}" in first.stdout
    pids = [pid_of(settings, part) for part in ("kafka", "smtp")]
    assert run("up", "--no-airflow").returncode == 0
    assert [pid_of(settings, part) for part in ("kafka", "smtp")] == pids
    assert states(run) == {"kafka": "up", "smtp": "up", "airflow": "down"}

    assert run("down").returncode == 0
    assert states(run) == {"kafka": "down", "smtp": "down", "airflow": "down"}
    assert run("down").returncode == 0

    assert run("up", "--no-airflow").returncode == 0
    assert exchanges_in(settings) == set(STARTER_COUNTRIES)


def test_after_kill_9_status_tells_the_truth_and_up_mends_it(run: Run, settings: Settings) -> None:
    assert run("up", "--no-airflow").returncode == 0
    for part in ("kafka", "smtp"):
        os.kill(pid_of(settings, part), signal.SIGKILL)
    wait_until(lambda: broker.state(settings)["state"] == "down", "the broker's end", 10)
    assert states(run) == {"kafka": "down", "smtp": "down", "airflow": "down"}
    assert "ended without being stopped" in run("status").stdout

    assert run("up", "--no-airflow").returncode == 0
    assert states(run) == {"kafka": "up", "smtp": "up", "airflow": "down"}
    assert exchanges_in(settings) == set(STARTER_COUNTRIES)


def test_a_broker_that_lives_and_does_not_answer_is_unhealthy_and_down_ends_it(
    run: Run, settings: Settings
) -> None:
    broker.start(settings)
    sink.start(settings)
    for part in ("kafka", "smtp"):
        os.kill(pid_of(settings, part), signal.SIGSTOP)
    assert states(run) == {"kafka": "unhealthy", "smtp": "unhealthy", "airflow": "down"}
    for part in ("kafka", "smtp"):
        os.kill(pid_of(settings, part), signal.SIGCONT)
    wait_until(lambda: broker.state(settings)["state"] == "up", "the broker", 20)


@pytest.mark.parametrize(
    ("port", "setting"),
    [("kafka_port", "SHARDPOST_KAFKA_PORT"), ("smtp_port", "SHARDPOST_SMTP_PORT")],
)
def test_a_taken_port_is_one_line_with_its_owner_and_setting_and_nothing_is_started(
    run: Run, settings: Settings, port: str, setting: str
) -> None:
    with socket.create_server(("127.0.0.1", getattr(settings, port))):
        failed = run("up", "--no-airflow")
        assert "in use by" in run("status").stdout
    assert failed.returncode == 1
    assert failed.stdout == ""
    (line,) = failed.stderr.splitlines()
    assert f"port {getattr(settings, port)}" in line
    assert f"(pid {os.getpid()})" in line
    assert setting in line
    assert states(run) == {"kafka": "down", "smtp": "down", "airflow": "down"}


def test_what_a_failing_up_has_started_is_stopped_again(run: Run) -> None:
    failed = run("up", "--no-airflow", SHARDPOST_REPLICATION_FACTOR="3")
    assert failed.returncode == 1
    assert "cannot be created" in failed.stderr.splitlines()[-1]
    assert states(run) == {"kafka": "down", "smtp": "down", "airflow": "down"}


def test_two_at_once_end_with_one_stack(
    run: Run, settings: Settings, stack_environ: dict[str, str]
) -> None:
    env = os.environ | stack_environ
    both = [
        subprocess.Popen([str(SHARDPOST), "up", "--no-airflow"], env=env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert states(run) == {"kafka": "up", "smtp": "up", "airflow": "down"}
    assert len(exchanges_in(settings)) == len(STARTER_COUNTRIES)


def test_a_home_that_cannot_be_written_is_one_clear_line(run: Run) -> None:
    failed = run("up", "--no-airflow", SHARDPOST_HOME="/proc/no-such-home")
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        "shardpost: SHARDPOST_HOME=/proc/no-such-home cannot be written"
    )


def test_a_server_that_is_not_ours_is_neither_started_nor_stopped(
    kafka: Settings, run: Run, settings: Settings
) -> None:
    theirs = {"SHARDPOST_BOOTSTRAP_SERVERS": kafka.bootstrap}
    assert run("up", "--no-airflow", **theirs).returncode == 0
    assert not (settings.home / "kafka").exists()
    found = json.loads(run("status", "--json", **theirs).stdout)
    assert found["kafka"] == {"state": "up", "address": kafka.bootstrap}
    assert run("down", **theirs).returncode == 0
    assert broker.state(kafka)["state"] == "up"


def test_a_port_that_was_changed_under_a_running_broker_is_said_at_once(
    run: Run, settings: Settings
) -> None:
    broker.start(settings)
    other = {"SHARDPOST_KAFKA_PORT": str(settings.kafka_port + 1)}
    failed = run("up", "--no-airflow", **other)
    assert failed.returncode == 1
    assert f"it was started on port {settings.kafka_port}" in failed.stderr.splitlines()[-1]
    found = json.loads(run("status", "--json", **other).stdout)["kafka"]
    assert found["state"] == "unhealthy"
    assert broker.state(settings)["state"] == "up"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("UnsupportedVersionException: Can't read version 4", "SHARDPOST_HOME to another folder"),
        ("java.lang.OutOfMemoryError", "kafka ended while starting"),
    ],
)
def test_a_broker_that_ends_at_once_says_why_and_what_to_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, said: str, expected: str
) -> None:
    java = settings.home / "java"
    (settings.home / "kafka" / "data").mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho "{said}"\nexit 1\n')
    java.chmod(0o755)
    monkeypatch.setattr(broker, "java", lambda: str(java))
    with pytest.raises(ShardpostError, match=expected) as raised:
        broker.start(settings)
    assert said in str(raised.value)
