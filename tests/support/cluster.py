"""The topology of a real installation: brokers, Spark, a database, each on a host of its own.

A part starts when it is first asked for, and is there until the tests end.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from shardpost.embedded import broker, daemons
from shardpost.embedded.broker import find_java
from shardpost.embedded.daemons import Daemon, wait_until
from shardpost.kafka.clients import why_nobody_listens
from shardpost.settings import Settings
from shardpost.spark.jars import jars_of
from tests.support.certificates import Authority
from tests.support.installed import installed
from tests.support.network import Host, Network, network
from tests.support.object_store import BUCKET, JVM, KEY, PROPERTIES, SECRET, store_environ
from tests.support.postgresql import Postgresql, postgresql
from tests.support.secured_kafka import SecuredKafka
from tests.support.spark_cluster import MASTER, SPARK_HOME, WORKER
from tests.support.three_brokers import (
    DISK,
    NUMBERS,
    START_SECONDS,
    ThreeBrokers,
    three_brokers,
)

KILL_SECONDS = 60.0
STORE_PASSWORD = "changeit"  # noqa: S105 - of files that hold certificates of tests


@dataclass(frozen=True)
class Part:
    """A process of the cluster, and its host."""

    daemon: Daemon
    host: Host
    disk: Path | None = None

    def kill(self) -> None:
        """SIGKILL it with what it has started, and wait for its end."""
        pid = self.daemon.pid
        self._signal(signal.SIGKILL)
        wait_until(lambda: not self.daemon.alive, f"the end of {self.daemon.name}", KILL_SECONDS)
        with suppress(ChildProcessError):
            os.waitpid(pid or 0, 0)  # PostgreSQL takes one that is not reaped for one that runs

    def start(self) -> None:
        """Start it again; it may take a while until it answers."""
        self.daemon.start()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Have it dead until the block ends."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have it neither run nor end until the block does."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Have it run, and reach nobody, until the block ends; skip the test where none can."""
        with self.host.cut_off():
            yield

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Have no room on its disk until the block ends; then it is started again."""
        if self.host.namespace is None or self.disk is None:
            pytest.skip("only root can give a host a disk of its own")
        full = self.disk / "full"
        with full.open("wb", buffering=0) as file, suppress(OSError):  # there is no room left
            while True:
                file.write(bytes(1 << 20))
        try:
            yield
        finally:
            full.unlink()
            if self.daemon.alive:
                self.kill()
            self.start()

    def _signal(self, number: int) -> None:
        """Send it to the process and to what it has started: Spark's executors, their workers."""
        pid = self.daemon.pid
        assert pid, f"{self.daemon.name} does not run"
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)


@dataclass(frozen=True)
class Store:
    """An object store, and the variables by which tables are on it."""

    part: Part
    port: int
    environ: dict[str, str]

    @property
    def accepts(self) -> bool:
        """Tell whether it accepts connections."""
        return why_nobody_listens(f"{self.part.host.address}:{self.port}", 1) is None


@dataclass(frozen=True)
class Database:
    """A PostgreSQL server, and the part of the cluster that it is."""

    server: Postgresql
    part: Part


@dataclass(frozen=True)
class Spark:
    """A master and workers, each on a host of its own; `url` is that of the master."""

    url: str
    master: Part
    workers: list[Part]


@dataclass(frozen=True)
class Cluster:
    """All parts, each with its host; `folder` has what they write."""

    folder: Path
    network: Network
    _running: ExitStack = field(repr=False)

    @cached_property
    def kafka(self) -> ThreeBrokers:
        """Three brokers: replication factor 3, two in-sync replicas at least."""
        home = self.folder / "kafka"
        brokers = three_brokers(home, self._broker_hosts, self.secured, self.network.address)
        return self._running.enter_context(brokers)

    @cached_property
    def secured(self) -> SecuredKafka:
        """The authority and the logins of the brokers' other listeners."""
        certificates = self.folder / "certificates"
        certificates.mkdir()
        return SecuredKafka(Authority(certificates))

    @cached_property
    def _broker_hosts(self) -> list[Host]:
        return [self.network.host() for _ in NUMBERS]

    @cached_property
    def spark(self) -> Spark:
        """A master, and two workers with a core each."""
        folder, port = self.folder / "spark", daemons.choose_port()
        master = self._spark_part(folder / "master", MASTER, "--port", str(port))
        url = f"spark://{master.host.address}:{port}"
        _await_line(master, "New state: ALIVE")
        own = ("--cores", "1", "--memory", "1g", url)
        workers = [self._spark_part(folder / f"worker{n}", WORKER, *own) for n in (1, 2)]
        for worker in workers:
            _await_line(worker, "Successfully registered")
        return Spark(url, master, workers)

    def _spark_part(self, folder: Path, role: str, *more: str) -> Part:
        folder.mkdir(parents=True)
        host = self.network.host()
        command = [str(SPARK_HOME / "bin" / "spark-class"), role]
        command += ["--host", host.address, "--webui-port", "0", *more]
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            # What executors trust besides Kafka: each host has a file of its own.
            "SSL_CERT_FILE": str(self.secured.authority.certificate),
            "JAVA_TOOL_OPTIONS": self.java_options,
        }
        log, pid_file = folder / "log", folder / "pid"
        made = Part(Daemon(role, host.inside(command), env, log, pid_file), host)
        made.start()
        self._running.callback(made.daemon.stop)
        return made

    @property
    def java_options(self) -> str:
        """What a JVM needs to trust the store's certificate."""
        store = self.secured.authority.trust_store(STORE_PASSWORD)
        given = {"trustStore": store, "trustStorePassword": STORE_PASSWORD}
        return " ".join(f"-Djavax.net.ssl.{name}={value}" for name, value in given.items())

    @cached_property
    def store(self) -> Store:
        """An object store that is reached by https."""
        folder, port, host = self.folder / "store", daemons.choose_port(), self.network.host()
        (folder / "data" / BUCKET).mkdir(parents=True)
        issued = self.secured.authority.issue("store", host.address)
        endpoint = f"https://{host.address}:{port}"
        given = {"key": KEY, "secret": SECRET, "folder": folder / "data", "port": port}
        _, _, rest = PROPERTIES.format(**given).partition("\n")
        own = {
            "s3proxy.secure-endpoint": endpoint,
            "s3proxy.keystore-path": issued.key_store(STORE_PASSWORD),
            "s3proxy.keystore-password": STORE_PASSWORD,
        }
        lines = "".join(f"{name}={value}\n" for name, value in own.items())
        (folder / "s3proxy.properties").write_text(lines + rest)
        [jar] = jars_of("s3proxy")
        run = [find_java(), *JVM, "-jar", str(jar), "--properties", "s3proxy.properties"]
        log, pid_file = folder / "log", folder / "pid"
        part = Part(Daemon("s3proxy", host.inside(run), broker.ENVIRONMENT, log, pid_file), host)
        part.start()
        self._running.callback(part.daemon.stop)
        variables = store_environ(port, AWS_ENDPOINT_URL=endpoint, AWS_ALLOW_HTTP="false")
        made = Store(part, port, {**variables, "SHARDPOST_TABLES": f"s3://{BUCKET}"})
        wait_until(lambda: made.accepts, "the store", START_SECONDS, [part.daemon])
        return made

    @cached_property
    def database(self) -> Database:
        """A PostgreSQL."""
        host = self.network.host()
        found = self._running.enter_context(postgresql(host))
        return Database(found, Part(found.daemon, host))

    @property
    def settings(self) -> Settings:
        """Settings that lead to this Kafka."""
        return self.kafka.settings

    def leader(self, topic: str, partition: int = 0) -> "Part":
        """Return the broker that leads a partition."""
        found = installed(self.settings).kafka.metadata().topics[topic].partitions[partition].leader
        return self.brokers[found]

    def mend(self) -> None:
        """Start the brokers that are dead."""
        for part in self.brokers.values():
            if not part.daemon.alive:
                part.start()

    def await_replicas(self) -> None:
        """Wait until each partition has all of its replicas in sync, and all brokers answer."""
        self.kafka.await_brokers(len(NUMBERS))
        wait_until(self._are_in_sync, "all replicas in sync", START_SECONDS)

    def _are_in_sync(self) -> bool:
        """Ask each broker: one that was cut off goes on as a leader until it hears of another."""
        try:
            views = [_partitions(address) for address in self.kafka.servers["PLAINTEXT"].split(",")]
        except KafkaException:  # of one that has not begun to answer
            return False
        is_whole = all(len(isrs) == replicas for _, isrs, replicas in views[0].values())
        return is_whole and all(view == views[0] for view in views)

    @cached_property
    def brokers(self) -> dict[int, Part]:
        """The brokers by their ids."""
        of_each = zip(self.kafka.brokers.items(), self._broker_hosts, strict=True)
        return {
            number: Part(daemon, host, daemon.pid_file.parent / DISK)
            for (number, daemon), host in of_each
        }


def _partitions(address: str) -> dict[tuple[str, int], tuple[int, set[int], int]]:
    """Return {(topic, partition): (leader, in-sync replicas, how many there are)} as a broker says.

    A new client asks the broker that it is given first.
    """
    topics = AdminClient({"bootstrap.servers": address}).list_topics(timeout=5).topics
    return {
        (name, number): (one.leader, {*one.isrs}, len(one.replicas))
        for name, topic in topics.items()
        for number, one in topic.partitions.items()
    }


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Give a cluster of which nothing runs yet; all that was started ends with the block."""
    with network() as net, ExitStack() as running:
        yield Cluster(folder, net, running)


def _await_line(part: Part, line: str) -> None:
    log = part.daemon.log
    wait_until(lambda: line in log.read_text(), f"`{line}`", START_SECONDS, [part.daemon])
