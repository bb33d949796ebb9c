"""A sender killed or halted mid-shard with all its processes: nobody twice, nobody passed over."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import psutil
import pytest

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest
from shardpost.weekly_email.email_run import run
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.job_process import Job, wait_for
from tests.support.mail_server import MailServer, mail_server, slow
from tests.support.week_tables import World, counts_by_shard

pytestmark = [
    pytest.mark.also_on_store,
    pytest.mark.one_of("kills of what sends"),
    pytest.mark.usefixtures("spark"),  # what is not killed runs in this process
]

CLIENTS = [f"client{n}" for n in range(400)]
WEEK = IsoWeek.last_ended(datetime.now(UTC))
CONNECTIONS = 3
SHARDS_AT_ONCE = 2
MOST_UNKNOWN = CONNECTIONS * SHARDS_AT_ONCE


def to(client: str) -> str:
    return f"{client}@x.example"


@pytest.fixture
def world(settings: Settings) -> World:
    apply_topics(installed(settings))
    made = World(settings.model_copy(update={"mail_connections": CONNECTIONS}))
    for number, client in enumerate(CLIENTS):
        made.position(str(number), client)
        made.client(client)
    made.commit(looked_at=datetime.now(UTC))
    return made


@contextmanager
def slow_server(world: World) -> Iterator[MailServer]:
    """Take a mail in 20 ms, so that there is a middle to be killed in."""
    with mail_server(slow(0.02)) as server:
        world.settings = world.settings.model_copy(update={"smtp_port": server.port})
        yield server


def sender(world: World) -> Job:
    return Job(world.settings, WEEKLY_EMAIL, EmailRequest(WEEK))


def send(world: World, **more: Any) -> int:
    """Send in this process; return the exit code."""
    return run(EmailRequest(WEEK, **more), installed(world.settings))[0]


def wait_for_mails(server: MailServer, number: int, job: Job) -> None:
    wait_for(lambda: server.taken.total() >= number, f"{number} mails", job)


def is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "pyspark.daemon" in process.cmdline()
    return False


def unknown_clients(world: World) -> set[str]:
    shards = counts_by_shard(world.settings, WEEK, WEEK.end)
    return {client for shard in shards for client in shard.unknown_clients}


def test_killed_again_and_again_it_mails_each_client_once(world: World) -> None:
    with slow_server(world) as server:
        unknown: set[str] = set()
        for kill_at in drawn((60, 200)):
            job = sender(world)
            wait_for_mails(server, kill_at, job)
            assert any(is_worker(process) for process in job.tree())
            job.kill()
            found = unknown_clients(world)
            assert len(found - unknown) <= MOST_UNKNOWN
            unknown = found
        assert send(world) == (3 if unknown else 0)
        assert unknown_clients(world) == unknown
        status = counts_by_shard(world.settings, WEEK, WEEK.end)
        assert sum(shard.sent for shard in status) == len(CLIENTS) - len(unknown)
        assert sum(shard.open + shard.failed for shard in status) == 0
        assert set(server.taken.values()) == {1}
        assert {c for c in CLIENTS if to(c) not in server.taken} <= unknown
        assert send(world, on_unknown="resend") == 0
        assert set(server.taken) == set(map(to, CLIENTS))
        assert {c for c in CLIENTS if server.taken[to(c)] > 1} <= unknown
        assert all(len(ids) == 1 for ids in server.message_ids.values())


def test_beside_a_halted_run_a_second_one_refuses_or_takes_over_and_nobody_is_mailed_twice(
    world: World,
) -> None:
    with slow_server(world) as server:
        first = sender(world)
        try:
            wait_for_mails(server, 20, first)
            first.stop()
            if world.settings.is_on_store:  # its locks end with their leases
                assert send(world) in (0, 3)
                first.resume()
                assert first.wait() != 0
                assert set(server.taken.values()) == {1}
                return
            with pytest.raises(ShardpostError, match=r"is already running \(pid \d+"):
                send(world)
            first.resume()
            assert first.wait() == 0, first.log.read_text()
        finally:
            first.kill()
        assert server.taken == dict.fromkeys(map(to, CLIENTS), 1)


def test_workers_whose_jvm_is_killed_end_too_and_mail_nobody_twice(world: World) -> None:
    with slow_server(world) as server:
        job = sender(world)
        wait_for_mails(server, 20, job)
        processes = job.tree()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    process.kill()
        job.wait()
        assert send(world) in (0, 3)
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert not alive
        unknown = unknown_clients(world)
        assert len(unknown) <= MOST_UNKNOWN
        assert set(server.taken.values()) == {1}
        assert {c for c in CLIENTS if to(c) not in server.taken} <= unknown
