"""Brokers of three that die, halt, are cut off or have a full disk: all of Shardpost ends well.

Each ends with the fold, the ledger and the letters counted.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.airflow_server import airflow_server
from tests.support.cluster import Cluster, Part
from tests.support.compacting import agree, starter
from tests.support.installed import installed
from tests.support.job_process import Job, paused, wait_for
from tests.support.letter_world import failed, live, original, put, seen, sweep, total
from tests.support.mail_server import MailServer, mail_server, slow
from tests.support.reference import Fold, Raw, closed, position, produce
from tests.support.run_requests import KEY, Dispatch, ask, decided, request
from tests.support.run_requests import run as dispatch
from tests.support.week_tables import World, counts_by_shard

HALT_SECONDS = 12.0
HOW = ("killed", "paused", "cut_off")
CLIENTS = [f"client{n}" for n in range(300)]
WEEK = IsoWeek.last_ended(datetime.now(UTC))
CONNECTIONS, SHARDS_AT_ONCE = 2, 4
MOST_UNKNOWN = CONNECTIONS * SHARDS_AT_ONCE

every_fault = pytest.mark.parametrize("how", HOW)
every_fault_of_one = pytest.mark.parametrize("how", [*HOW, "disk_full"])


@pytest.fixture
def ready(cluster: Cluster, settings: Settings) -> Settings:
    apply_topics(installed(settings))
    cluster.await_replicas()
    return settings


@contextmanager
def broken(cluster: Cluster, how: str, *parts: Part) -> Iterator[None]:
    """Have parts so broken until the block ends; halted, for 12 s at most, as a machine may be."""
    with ExitStack() as faults:
        for part in parts:
            faults.enter_context(getattr(part, how)())
        timer = threading.Timer(HALT_SECONDS, faults.close)
        if how == "paused":
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
    cluster.await_replicas()


def batch(number: int) -> list[Raw]:
    """Return positions of all clients, new or moved, one that is closed, and a bad one."""
    return [
        *(position(str(n), CLIENTS[(n + number) % 300], "NASDAQ") for n in range(600)),
        closed(str(number)),
        Raw("positions", b"bad", b"{"),
    ]


@pytest.mark.parametrize("step", ["read", "publish", "letters"])
@every_fault_of_one
def test_a_compaction_goes_on_without_one_broker(
    cluster: Cluster, ready: Settings, how: str, step: str
) -> None:
    fold = Fold()
    fold.add(starter() + batch(1))
    produce(ready, batch(1))
    with paused(ready, COMPACT_POSITIONS, pause_at=step) as job:
        topic = {"read": "positions", "publish": "share-holders"}.get(step, "dead-letters")
        with broken(cluster, how, cluster.leader(ready.topic(topic))):  # type: ignore[arg-type]
            job.resume()
            assert job.wait() == 0, job.log.read_text()
    agree(ready, fold)
    assert len(live(ready, ready.topic("dead-letters"))) == 1


@pytest.fixture
def world(ready: Settings) -> World:
    made = World(ready.model_copy(update={"mail_connections": CONNECTIONS}))
    for number, client in enumerate(CLIENTS):
        made.position(str(number), client)
        made.client(client)
    made.commit(looked_at=datetime.now(UTC))
    return made


@contextmanager
def slow_server(world: World) -> Iterator[MailServer]:
    """Take a mail in 50 ms, so that there is a middle."""
    with mail_server(slow(0.05)) as server:
        world.settings = world.settings.model_copy(update={"smtp_port": server.port})
        yield server


def mailed_once(world: World, server: MailServer) -> None:
    """Hold what the server took against the ledger: nobody twice, and nobody passed over."""
    counts = counts_by_shard(world.settings, WEEK, WEEK.end)
    unknown = {client for shard in counts for client in shard.unknown_clients}
    assert len(unknown) <= MOST_UNKNOWN
    assert sum(shard.sent for shard in counts) == len(CLIENTS) - len(unknown)
    assert sum(shard.open + shard.failed for shard in counts) == 0
    assert set(server.taken.values()) == {1}
    taken = {recipient.partition("@")[0] for recipient in server.taken}
    assert set(CLIENTS) - taken <= unknown


@every_fault_of_one
def test_a_send_goes_on_without_one_broker_and_mails_each_client_once(
    cluster: Cluster, world: World, how: str
) -> None:
    with slow_server(world) as server:
        job = Job(world.settings, WEEKLY_EMAIL, EmailRequest(WEEK))
        try:
            wait_for(lambda: server.taken.total() >= 20, "mails", job)
            leader = cluster.leader(world.settings.topic("weekly-emails"))
            with broken(cluster, how, leader):
                assert job.wait() == 0, job.log.read_text()
        finally:
            job.kill()
        mailed_once(world, server)
        assert set(server.taken) == {f"{client}@x.example" for client in CLIENTS}


@every_fault_of_one
def test_a_sweep_goes_on_without_one_broker_and_sends_each_letter_once(
    cluster: Cluster, ready: Settings, how: str
) -> None:
    settings = ready.model_copy(update={"retry_jitter": 0.0, "retry_batch": 4})
    count = 1000
    put(settings, [failed(settings, original(n, b"k%d" % n)) for n in range(count)])
    with ThreadPoolExecutor(1) as pool:
        sweeping = pool.submit(sweep, settings, datetime.now(UTC) + timedelta(days=1))
        wait_for(lambda: sweeping.done() or len(seen(settings)) > 20, "retries")
        with broken(cluster, how, cluster.leader(settings.topic("dead-letters"))):
            assert total(sweeping.result(300)) == {"retried": count}
    assert [*seen(settings).values()] == [1] * count
    assert not live(settings, settings.topic("dead-letters"))


@pytest.mark.parametrize("step", ["read requests", "commit commands", "commit started"])
@every_fault_of_one
def test_a_dispatch_goes_on_without_one_broker_and_starts_one_run(
    cluster: Cluster, ready: Settings, how: str, step: str
) -> None:
    with airflow_server(weekly_email=False, compact_positions=False) as airflow:
        settings = ready.model_copy(update=airflow.environ())
        for key, value in ((KEY, request()), (KEY, request({"x": 1})), (b"bad", b"?")):
            ask(settings, key, value)
        halted = Dispatch(settings, step)
        with broken(cluster, how, cluster.leader(settings.topic("run-commands"))):
            code, said = halted.resume()
            assert code == 0, said
        dispatch(settings)
        assert len(airflow.started) == 1
        assert decided(settings) == [("conflict", KEY), ("refused", "bad")]


TWO = (1, 2)


def two(cluster: Cluster) -> list[Part]:
    return [cluster.brokers[number] for number in TWO]


@every_fault
def test_without_two_brokers_a_compaction_ends_within_its_bound_and_the_next_one_is_whole(
    cluster: Cluster, ready: Settings, how: str
) -> None:
    hasty = ready.model_copy(update={"kafka_timeout": 8})
    fold = Fold()
    for number, step in enumerate(("read", "publish")):
        produce(ready, batch(number))
        fold.add((starter() if not number else []) + batch(number))
        with paused(hasty, COMPACT_POSITIONS, pause_at=step) as job:
            with broken(cluster, how, *two(cluster)):
                job.resume()
                code = job.wait(180)
            assert code in ((0, 1) if how == "paused" else (1,)), job.log.read_text()
            assert code == 0 or job.why_failed()
    again = Job(ready, COMPACT_POSITIONS)
    assert again.wait() == 0, again.log.read_text()
    agree(ready, fold)
    assert len(live(ready, ready.topic("dead-letters"))) == 2


def test_a_compaction_waits_for_two_halted_brokers_and_goes_on_by_itself(
    cluster: Cluster, ready: Settings
) -> None:
    fold = Fold()
    fold.add(starter() + batch(1))
    produce(ready, batch(1))
    with (
        paused(ready, COMPACT_POSITIONS, pause_at="publish") as job,
        broken(cluster, "paused", *two(cluster)),
    ):
        job.resume()
        assert job.wait() == 0, job.log.read_text()
    agree(ready, fold)


@every_fault
def test_without_two_brokers_a_send_stops_within_its_bound_and_the_next_one_mails_the_rest(
    cluster: Cluster, world: World, how: str
) -> None:
    with slow_server(world) as server:
        hasty = world.settings.model_copy(update={"kafka_timeout": 8})
        job = Job(hasty, WEEKLY_EMAIL, EmailRequest(WEEK))
        try:
            wait_for(lambda: server.taken.total() >= 20, "mails", job)
            with broken(cluster, how, *two(cluster)):
                code = job.wait(180)
            assert code in (0, 1, 3), job.log.read_text()
        finally:
            job.kill()
        again = Job(world.settings, WEEKLY_EMAIL, EmailRequest(WEEK))
        assert again.wait() in (0, 3), again.log.read_text()
        mailed_once(world, server)


def test_a_rolling_restart_of_all_brokers_under_load_loses_nothing(
    cluster: Cluster, ready: Settings
) -> None:
    fold, over = Fold(), threading.Event()
    fold.add(starter())

    def load() -> int:
        number = 0
        while not over.is_set():
            produce(ready, batch(number)[:50])
            fold.add(batch(number)[:50])
            number += 1
        return number

    def compactions() -> list[int]:
        codes = []
        while not over.is_set():
            codes.append(Job(ready, COMPACT_POSITIONS).wait())
        return codes

    with ThreadPoolExecutor(2) as pool:
        written, codes = pool.submit(load), pool.submit(compactions)
        try:
            for number in cluster.brokers:
                cluster.kafka.stop(number)
                cluster.kafka.start(number)
                cluster.await_replicas()
        finally:
            over.set()
        assert written.result() > len(cluster.brokers)
        assert set(codes.result()) == {0}
    last = Job(ready, COMPACT_POSITIONS)
    assert last.wait() == 0, last.log.read_text()
    agree(ready, fold)
