"""`shardpost doctor` as a user calls it: on a stack that is up, broken, or not there."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from shardpost.embedded import broker, sink
from shardpost.embedded.daemons import wait_until
from shardpost.kafka.greeting import broker_level
from tests.support.command_line import CommandLine
from tests.support.installed import installed

Found = dict[str, Any]
MACHINE = ("java", "jars", "settings")


def doctor(shardpost: CommandLine, code: int = 3) -> dict[str, Found]:
    return {one["check"]: one for one in shardpost.json("doctor", code=code)}


def files(home: Path) -> dict[Path, int]:
    """Return all files of a home with their times, but for what a running stack writes."""
    paths = [path for path in home.rglob("*") if path.parts[len(home.parts)] != "kafka"]
    return {path: path.stat().st_mtime_ns for path in paths if "logs" not in path.parts}


def test_on_an_empty_machine_it_says_quickly_what_is_missing_and_makes_nothing(
    stack_environ: dict[str, str],
) -> None:
    shardpost = CommandLine(stack_environ)
    began = time.monotonic()
    found = doctor(shardpost)
    assert time.monotonic() - began < 10
    assert {found[name]["state"] for name in MACHINE} == {"ok"}
    assert found["kafka"]["cure"] == found["mail server"]["cure"] == "shardpost up"
    assert found["airflow"]["state"] == "warning"
    assert {found[name]["state"] for name in ("topics", "stores", "inputs")} == {"unknown"}
    assert f"{shardpost.settings.kafka_port} is free" in found["port of kafka"]["found"]
    assert not shardpost.settings.home.exists()


def test_of_a_stack_that_is_up_only_the_first_snapshot_and_airflow_are_missing(
    lasting: CommandLine,
) -> None:
    before = files(lasting.settings.home)
    found = doctor(lasting)
    wrong = {name for name, one in found.items() if one["state"] in ("warning", "error")}
    assert wrong == {"snapshot", "airflow"}
    assert found["snapshot"]["cure"] == "shardpost compact"
    assert found["kafka version"]["found"] == "Kafka 4.2"
    assert "is held by Kafka" in found["port of kafka"]["found"]
    assert files(lasting.settings.home) == before


def test_a_broker_that_hangs_and_a_port_of_another_are_named(lasting: CommandLine) -> None:
    settings = lasting.settings
    sink.stop(settings)
    pid = int((settings.home / "kafka" / "kafka.pid").read_text().split(":")[1].split(",")[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        with socket.create_server(("127.0.0.1", settings.smtp_port)):
            began = time.monotonic()
            found = doctor(lasting)
            assert time.monotonic() - began < 15
    finally:
        os.kill(pid, signal.SIGCONT)
        sink.start(settings)
    assert f"pid {pid} runs but does not answer" in found["port of kafka"]["found"]
    assert found["kafka"]["state"] == "error"
    assert f"(pid {os.getpid()})" in found["port of smtp"]["found"]
    assert "set SHARDPOST_SMTP_PORT to a free port" in found["port of smtp"]["cure"]
    assert found["mail server"]["state"] == "error"
    wait_until(lambda: broker.state(settings)["state"] == "up", "the broker", 20)


def test_a_mail_server_that_greets_gets_no_mail(lasting: CommandLine) -> None:
    assert doctor(lasting)["mail server"]["state"] == "ok"
    assert not list((lasting.settings.home / "mail").iterdir())


def test_the_broker_says_its_release(lasting: CommandLine) -> None:
    assert broker_level(installed(lasting.settings).kafka.config(), 5) == 29
