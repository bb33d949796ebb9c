"""A sender that is killed or halted mid-shard, with all its processes: nobody twice, nobody passed over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import psutil
import pytest
from pyspark.sql import SparkSession

from shardpost.adapters import topics
from shardpost.adapters.week_ledger import stands
from shardpost.domain.weeks import IsoWeek
from shardpost.settings import Settings
from tests.mail_server import MailServer, mail_server
from tests.spark.week_tables import World

CLIENTS = [f"client{n}" for n in range(400)]
WEEK = IsoWeek.last_ended(datetime.now(UTC))
WAIT_SECONDS = 240
CONNECTIONS = 3
SHARDS_AT_ONCE = 2


def to(client: str) -> str:
    return f"{client}@x.example"


@pytest.fixture
def world(settings: Settings, spark: SparkSession) -> World:
    topics.apply(settings)
    made = World(spark, settings.model_copy(update={"mail_connections": CONNECTIONS}))
    for number, client in enumerate(CLIENTS):
        made.position(str(number), client)
        made.client(client)
    made.commit(looked_at=datetime.now(UTC))
    return made


@contextmanager
def slow_server(world: World) -> Iterator[MailServer]:
    """Take a mail in 20 ms, so that there is a middle to be killed in."""

    def script(stage: str, _recipient: str) -> None:
        if stage == "end":
            time.sleep(0.02)

    with mail_server(script) as server:
        world.settings = world.settings.model_copy(update={"smtp_port": server.port})
        yield server


def start(world: World, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "shardpost", "email", "--week", str(WEEK), *more]
    environ = {"PATH": os.environ["PATH"], **world.settings.environ()}
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"
        time.sleep(0.02)


def tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        if process.is_running():
            process.send_signal(number)


def test_killed_again_and_again_it_mails_each_client_once(world: World) -> None:
    with slow_server(world) as server:
        in_doubt: set[str] = set()
        for kill_at in (60, 200):
            sender = start(world)
            until(f"{kill_at} mails", lambda at=kill_at: server.taken.total() >= at)
            processes = tree(sender)
            assert any("pyspark.daemon" in " ".join(p.cmdline()) for p in processes)
            signal_all(processes, signal.SIGKILL)
            psutil.wait_procs(processes, timeout=30)
            sender.communicate()
            new = {client for shard in stands(world.settings, WEEK, 4) for client in shard.unknown}
            assert len(new - in_doubt) <= CONNECTIONS * SHARDS_AT_ONCE
            in_doubt = new
        assert start_and_wait(world) == (3 if in_doubt else 0)
        found = stands(world.settings, WEEK, 4)
        assert {client for shard in found for client in shard.unknown} == in_doubt
        assert sum(shard.sent for shard in found) == len(CLIENTS) - len(in_doubt)
        assert sum(shard.open + shard.failed for shard in found) == 0
        assert set(server.taken.values()) == {1}
        assert {c for c in CLIENTS if to(c) not in server.taken} <= in_doubt
        assert start_and_wait(world, "--on-unknown", "resend") == 0
        assert set(server.taken) == set(map(to, CLIENTS))
        assert {c for c in CLIENTS if server.taken[to(c)] > 1} <= in_doubt
        assert all(len(ids) == 1 for ids in server.message_ids.values())


def start_and_wait(world: World, *more: str) -> int:
    sender = start(world, *more)
    sender.communicate(timeout=WAIT_SECONDS)
    return sender.returncode


def test_beside_a_halted_run_a_second_one_refuses_and_the_first_goes_on(world: World) -> None:
    with slow_server(world) as server:
        first = start(world)
        until("20 mails", lambda: server.taken.total() >= 20)
        halted = tree(first)
        signal_all(halted, signal.SIGSTOP)
        try:
            second = start(world)
            _, said = second.communicate(timeout=WAIT_SECONDS)
        finally:
            signal_all(halted, signal.SIGCONT)
        assert second.returncode == 1
        assert "is already running (pid " in said
        first.communicate(timeout=WAIT_SECONDS)
        assert first.returncode == 0
        assert server.taken == dict.fromkeys(map(to, CLIENTS), 1)


def test_the_driver_alone_killed_takes_its_workers_with_it(world: World) -> None:
    """The JVM dies and cannot end its workers: they must notice, or be fenced."""
    with slow_server(world) as server:
        sender = start(world)
        until("20 mails", lambda: server.taken.total() >= 20)
        processes = tree(sender)
        for process in processes:
            if process.name() == "java":
                process.kill()
        sender.communicate(timeout=WAIT_SECONDS)
        assert start_and_wait(world) in (0, 3)
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert not alive
        found = stands(world.settings, WEEK, 4)
        in_doubt = {client for shard in found for client in shard.unknown}
        assert len(in_doubt) <= CONNECTIONS * SHARDS_AT_ONCE
        assert set(server.taken.values()) == {1}
        assert {c for c in CLIENTS if to(c) not in server.taken} <= in_doubt
