"""Jobs on two workers, each where neither the driver nor the other is; one dies in the middle.

Spark's own settings come from a file: fixed ports, another Python, variables of the executors.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.delta import file_statistics
from shardpost.embedded.daemons import choose_port
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.spark import delta_files, driver
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.compacting import agree
from tests.support.installed import installed
from tests.support.job_process import PAUSING_ANYWHERE, Job, paused, wait_for
from tests.support.letter_world import failed, original, put, ready_for_letters, seen
from tests.support.mail_server import mail_server
from tests.support.record_streams import Stream
from tests.support.reference import Raw, position
from tests.support.spark_cluster import (
    QUICK_JVM,
    Cluster,
    kill_executor,
    own_address,
    spark_cluster,
)
from tests.support.week_tables import World, counts_by_shard

pytestmark = pytest.mark.usefixtures("spark")
of_clusters = pytest.mark.one_of("whole systems")
# Executors there have the same ports. Loopback is it for tests only: it is one machine.
WORKERS = ("127.0.0.2", "127.0.0.3")
PORTS = ("spark.driver.port", "spark.driver.blockManager.port", "spark.blockManager.port")
WEEK = IsoWeek.last_ended(datetime.now(UTC))
CLIENTS = [f"client{n}" for n in range(400)]
CONNECTIONS = 3
SHARDS = 4

OnCluster = Callable[..., Settings]


def test_rows_that_workers_wrote_to_other_disks_are_missed_before_a_commit(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_files, "is_local", lambda _: False)
    rows = spark.sql("SELECT '1' AS client, array('a') AS positions, 0 AS shard, 1L AS snapshot")
    rows = rows.union(rows.withColumn("shard", F.lit(1)))

    def write(kept: DataFrame, folder: str) -> delta_files.Written:
        return delta_files.write(installed(settings).tables, SHARE_HOLDERS, kept, folder)

    assert write(rows, "all").rows == len(write(rows, "again").files) == 2
    assert write(rows.where("client > '1'"), "none").rows == 0
    there = file_statistics.add_actions
    monkeypatch.setattr(file_statistics, "add_actions", lambda *where: there(*where)[:1])
    with pytest.raises(ShardpostError, match=r"share_holders: expected 2 rows .* found 1: SHARDPO"):
        write(rows, "elsewhere")


def test_files_that_are_not_seen_here_are_not_committed(settings: Settings) -> None:
    with pytest.raises(ShardpostError, match=r"expected the file a/b\.parquet, which a worker"):
        file_statistics.require_seen(installed(settings).tables, SHARE_HOLDERS, ["a/b.parquet"])


def test_python_on_executors_has_the_keys_of_the_object_store(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark.sparkContext
    monkeypatch.setattr(context, "environment", {**context.environment})
    monkeypatch.setenv("AWS_SESSION_TOKEN", "hush")
    driver.start_session("tests")
    tasks = context.parallelize([0], 1).map(lambda _: os.environ.get("AWS_SESSION_TOKEN"))
    assert tasks.collect() == ["hush"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with spark_cluster(tmp_path_factory.mktemp("cluster"), address, WORKERS) as running:
        yield running


@pytest.fixture
def ports() -> dict[str, int]:
    return {name: choose_port() for name in PORTS}


@pytest.fixture
def on_cluster(
    cluster: Cluster, ports: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OnCluster:
    """Give what returns settings whose jobs run on the cluster, with more of Spark's."""
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    python = tmp_path / "python of executors"
    python.write_text(f'#!/bin/sh\necho >> "{tmp_path}/ran"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    def settings_on_cluster(settings: Settings, **more: object) -> Settings:
        fixed = {
            "spark.driver.host": own_address(),
            "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - as behind a container's name
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.pyspark.python": python,
        }
        file = tmp_path / "spark.conf"
        lines = (f"{name} {value}\n" for name, value in (fixed | ports | more).items())
        file.write_text("".join(lines))
        return settings.model_copy(update={"spark_master": cluster.master, "spark_conf": file})

    return settings_on_cluster


def listening(process: psutil.Process) -> set[int]:
    """Return the ports that a JVM opens to other machines; those of its Python are on loopback."""
    found = process.net_connections("tcp")
    ours = [one.laddr for one in found if one.status == psutil.CONN_LISTEN]
    return {address.port for address in ours if address.ip.removeprefix("::ffff:") != "127.0.0.1"}


def to(client: str) -> str:
    return f"{client}@x.example"


def shard_of(client: str) -> int:
    return partition_of(client.encode(), SHARDS)


@pytest.fixture
def world(settings: Settings, on_cluster: OnCluster) -> World:
    made = World(settings.model_copy(update={"mail_connections": CONNECTIONS}))
    apply_topics(installed(made.settings))
    for number, client in enumerate(CLIENTS):
        made.position(str(number), client)
        made.client(client)
    made.commit(looked_at=datetime.now(UTC))
    made.settings = on_cluster(made.settings)
    return made


class Held:
    """Holds the answers to mails that come when some are taken; later ones are answered at once."""

    def __init__(self) -> None:
        self._clients: list[str] = []
        self.is_over, self._answer = threading.Event(), threading.Event()

    def wait(self, recipient: str) -> None:
        self._clients.append(recipient.partition("@")[0])
        self._answer.wait(240)

    def shards(self) -> set[int]:
        return {*map(shard_of, [*self._clients])}

    def answer(self) -> None:
        self._answer.set()


@of_clusters
def test_the_shard_of_a_lost_executor_goes_on_elsewhere_and_no_other_one_is_touched(
    world: World, cluster: Cluster, ports: dict[str, int], tmp_path: Path
) -> None:
    held = Held()

    def script(stage: str, recipient: str) -> None:
        if stage == "end" and not held.is_over.is_set() and server.taken.total() >= 40:
            held.wait(recipient)

    with mail_server(script) as server:
        world.settings = world.settings.model_copy(update={"smtp_port": server.port})
        job = Job(world.settings, WEEKLY_EMAIL, EmailRequest(WEEK))
        try:
            wait_for(lambda: len(held.shards()) == len(WORKERS), "mails", job)
            [driver] = [one for one in job.tree() if one.name() == "java"]
            executors = cluster.executors()
            assert listening(driver) == {ports[name] for name in PORTS[:2]}
            assert [*map(listening, executors)] == [{ports[PORTS[2]]}] * len(WORKERS)
            held.is_over.set()
            kill_executor(executors[0])

            def all_but(shard: int) -> int:
                others = (client for client in CLIENTS if shard_of(client) != shard)
                return sum(to(client) not in server.taken for client in others)

            live = held.shards()
            wait_for(lambda: min(map(all_but, live)) <= CONNECTIONS, "the other shards", job)
            held.answer()
            assert job.wait() == 3, job.log.read_text()
        finally:
            job.kill()
    shards = counts_by_shard(world.settings, WEEK, WEEK.end)
    unknown = {client for shard in shards for client in shard.unknown_clients}
    assert 1 <= len(unknown) <= CONNECTIONS
    assert len({*map(shard_of, unknown)}) == 1
    assert sum(shard.sent for shard in shards) == len(CLIENTS) - len(unknown)
    assert set(server.taken.values()) == {1}
    assert {client for client in CLIENTS if to(client) not in server.taken} <= unknown
    assert (tmp_path / "ran").exists()


@of_clusters
def test_a_sweep_goes_on_elsewhere_sends_nothing_twice_and_says_what_it_cannot_count(
    settings: Settings, cluster: Cluster, on_cluster: OnCluster, tmp_path: Path
) -> None:
    mark, count = tmp_path / "paused", 100
    ready = ready_for_letters(settings, partitions=2, retry_batch=10)
    when = datetime.now(UTC) - timedelta(hours=1)
    put(ready, [failed(ready, original(n, b"k%d" % n), when=when) for n in range(count)])
    variables = {"PYTHONPATH": PAUSING_ANYWHERE, "PAUSE_AT": "committed"}
    variables |= {"PAUSE_AT_TIME": "2", "PAUSED": mark}
    more = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    job = Job(on_cluster(ready, **more), SWEEP_DEAD_LETTERS)
    try:
        wait_for(lambda: mark.exists(), "a worker to stop itself", job)
        wait_for(lambda: any(map(has_stopped, cluster.executors())), "its stop", job)
        [lost] = filter(has_stopped, cluster.executors())
        kill_executor(lost)
        assert job.wait() == 3, job.log.read_text()
    finally:
        job.kill()
    assert len(seen(ready)) == count
    assert set(seen(ready).values()) == {1}


def has_stopped(executor: psutil.Process) -> bool:
    workers = executor.children(recursive=True)
    return any(worker.status() == psutil.STATUS_STOPPED for worker in workers)


@of_clusters
def test_a_compaction_ends_right_whatever_executors_it_loses(
    stream: Stream, cluster: Cluster, on_cluster: OnCluster
) -> None:
    settings = on_cluster(stream.settings)
    records: list[Any] = [position(str(n), f"client{n % 7}", "NASDAQ") for n in range(50)]
    stream.send([*records, Raw("positions", b"2", b"{")])
    with paused(settings, COMPACT_POSITIONS, pause_at="share_holders") as job:
        for executor in cluster.executors():
            kill_executor(executor)
        job.resume()
        assert job.wait() == 0, job.log.read_text()
    agree(settings, stream.fold)
