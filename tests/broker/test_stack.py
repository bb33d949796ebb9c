"""`up`, `down` and `status` as a user calls them, without Airflow."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardpost.embedded import broker, daemons, stack
from shardpost.embedded.daemons import wait_until
from shardpost.errors import ShardpostError
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings import Settings, load
from shardpost.topics.declared import STARTER_COUNTRIES
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed

NO_AIRFLOW = ("up", "--no-airflow")
BOTH_UP = {"kafka": "up", "smtp": "up", "airflow": "down"}
ALL_DOWN = dict.fromkeys(BOTH_UP, "down")


@pytest.fixture
def own(stack_environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """Give variables of a stack of this test's own; what it left up is taken down."""
    yield stack_environ
    stack.down(load(stack_environ), say=lambda _: None)


def states(command: CommandLine) -> dict[str, str]:
    found: dict[str, dict[str, str]] = command.json("status")
    return {name: part["state"] for name, part in found.items()}


def pid_of(settings: Settings, part: str) -> int:
    path = {"kafka": "kafka/kafka.pid", "smtp": "run/smtp.pid"}[part]
    identity: dict[str, Any] = json.loads((settings.home / path).read_text())
    return int(identity["pid"])


def exchanges_in(settings: Settings) -> set[str]:
    topic = settings.topic("exchanges")
    count = partition_counts(installed(settings).kafka, [topic])[topic]
    found = [
        read_to_end(installed(settings).kafka, TopicPartition(topic, partition))
        for partition in range(count)
    ]
    return {(message.key() or b"").decode() for messages in found for message in messages}


def test_up_and_down_can_be_called_again_and_what_was_there_stays(lasting: CommandLine) -> None:
    pids = [pid_of(lasting.settings, part) for part in ("kafka", "smtp")]
    lasting(*NO_AIRFLOW)
    assert [pid_of(lasting.settings, part) for part in ("kafka", "smtp")] == pids
    assert states(lasting) == BOTH_UP

    lasting("down")
    assert states(lasting) == ALL_DOWN
    lasting("down")

    lasting(*NO_AIRFLOW)
    assert exchanges_in(lasting.settings) == set(STARTER_COUNTRIES)


def test_a_home_without_a_snapshot_names_the_home_of_the_stack_that_is_up(
    lasting: CommandLine, tmp_path: Path
) -> None:
    lasting(*NO_AIRFLOW)
    port, home = lasting.settings.kafka_port, lasting.settings.home
    said = f"; the stack that is up on port {port} has SHARDPOST_HOME={home}"
    empty = CommandLineHere(lasting.settings.model_copy(update={"home": tmp_path}).environ())
    assert empty.refused("holders", code=1).strip().endswith(f"run `shardpost compact`{said}")
    assert empty("snapshots").strip().endswith(said)
    assert said not in lasting.refused("holders", code=1)


@pytest.mark.one_of("stacks")
def test_after_kill_9_status_tells_the_truth_and_up_mends_it(lasting: CommandLine) -> None:
    for part in ("kafka", "smtp"):
        os.kill(pid_of(lasting.settings, part), signal.SIGKILL)
    wait_until(lambda: broker.state(lasting.settings)["state"] == "down", "the broker's end", 10)
    assert states(lasting) == ALL_DOWN
    assert "ended without being stopped" in lasting("status")

    lasting(*NO_AIRFLOW)
    assert states(lasting) == BOTH_UP
    assert exchanges_in(lasting.settings) == set(STARTER_COUNTRIES)


def test_a_broker_that_lives_and_does_not_answer_is_unhealthy(lasting: CommandLine) -> None:
    for part in ("kafka", "smtp"):
        os.kill(pid_of(lasting.settings, part), signal.SIGSTOP)
    try:
        found = states(lasting)
    finally:
        for part in ("kafka", "smtp"):
            os.kill(pid_of(lasting.settings, part), signal.SIGCONT)
    assert found == {"kafka": "unhealthy", "smtp": "unhealthy", "airflow": "down"}
    wait_until(lambda: broker.state(lasting.settings)["state"] == "up", "the broker", 20)


@pytest.mark.one_of("stacks")
def test_a_port_that_was_changed_under_a_running_broker_is_said_at_once(
    lasting: CommandLine,
) -> None:
    settings = lasting.settings
    other = CommandLineHere(
        settings.model_copy(update={"kafka_port": daemons.choose_port()}).environ()
    )
    line = other.refused(*NO_AIRFLOW, code=1)
    assert f"it was started on port {settings.kafka_port}" in line
    assert states(other)["kafka"] == "unhealthy"
    assert broker.state(settings)["state"] == "up"


@pytest.mark.parametrize(
    ("port", "setting"),
    [("kafka_port", "SHARDPOST_KAFKA_PORT"), ("smtp_port", "SHARDPOST_SMTP_PORT")],
)
def test_a_taken_port_is_one_line_with_its_owner_and_setting_and_nothing_is_started(
    own: dict[str, str], port: str, setting: str
) -> None:
    shardpost = CommandLineHere(own)
    taken = getattr(shardpost.settings, port)
    with socket.create_server(("127.0.0.1", taken)):
        failed = shardpost.run(*NO_AIRFLOW)
        assert "in use by" in shardpost("status")
    assert (failed.returncode, failed.stdout) == (1, "")
    (line,) = failed.stderr.splitlines()
    assert f"port {taken}" in line
    assert f"(pid {os.getpid()})" in line
    assert setting in line
    assert states(shardpost) == ALL_DOWN


@pytest.mark.one_of("stacks")
def test_what_a_failing_up_has_started_is_stopped_again(own: dict[str, str]) -> None:
    shardpost = CommandLineHere(own | {"SHARDPOST_REPLICATION_FACTOR": "3"})
    failed = shardpost.run(*NO_AIRFLOW)
    assert failed.returncode == 1
    assert "cannot be created" in failed.stderr.splitlines()[-1]
    assert states(shardpost) == ALL_DOWN


@pytest.mark.one_of("stacks")
def test_two_at_once_end_with_one_stack(own: dict[str, str]) -> None:
    shardpost = CommandLine(own)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: shardpost.run(*NO_AIRFLOW), range(2)))
    assert [done.returncode for done in both] == [0, 0]
    assert both[0].stdout == both[1].stdout
    assert states(shardpost) == BOTH_UP
    assert len(exchanges_in(shardpost.settings)) == len(STARTER_COUNTRIES)


def test_a_home_that_cannot_be_written_is_one_clear_line(own: dict[str, str]) -> None:
    shardpost = CommandLineHere(own | {"SHARDPOST_HOME": "/proc/no-such-home"})
    line = shardpost.refused(*NO_AIRFLOW, code=1)
    assert line.startswith("shardpost: SHARDPOST_HOME=/proc/no-such-home cannot be written")


def test_a_server_that_is_not_ours_is_neither_started_nor_stopped(
    kafka: Settings, own: dict[str, str]
) -> None:
    theirs = {
        "SHARDPOST_BOOTSTRAP_SERVERS": kafka.bootstrap,
        "SHARDPOST_AIRFLOW_URL": f"http://{kafka.bootstrap}",  # something listens there
        "SHARDPOST_AIRFLOW_USER": "admin",
        "SHARDPOST_AIRFLOW_PASSWORD": "secret",
    }
    shardpost = CommandLineHere(own | theirs)
    shardpost("up")
    assert {path.name for path in shardpost.settings.home.iterdir()} & {"kafka", "airflow"} == set()
    found = shardpost.json("status")
    assert found["kafka"] == {"state": "up", "address": kafka.bootstrap}
    assert found["airflow"] == {"state": "up", "address": f"http://{kafka.bootstrap}"}
    shardpost("down")
    assert broker.state(kafka)["state"] == "up"


def test_a_broker_that_ends_at_once_says_why(
    own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(own)
    java = settings.home / "java"
    (settings.home / "kafka" / "data").mkdir(parents=True)
    java.write_text("#!/bin/sh\necho java.lang.OutOfMemoryError\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(broker, "find_java", lambda: str(java))
    said = "kafka ended while starting; .* java.lang.OutOfMemoryError"
    with pytest.raises(ShardpostError, match=said):
        broker.start(settings)
