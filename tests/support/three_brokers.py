"""A cluster of three brokers on this machine, of which a test may stop one."""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from shardpost.embedded import broker, daemons
from shardpost.embedded.broker import JVM, find_java
from shardpost.embedded.daemons import Daemon, wait_until
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.settings import Settings, load
from tests.conftest import environ
from tests.support.installed import forget_admins, installed
from tests.support.links import Place
from tests.support.network import LOOPBACK, Host
from tests.support.secured_kafka import LISTENERS, SecuredKafka, add_user

NUMBERS = (1, 2, 3)
START_SECONDS = 120.0
KILL_SECONDS = 1.0
DISK = "data"  # as log.dirs has it
PROPERTIES = """\
process.roles=broker,controller
node.id={number}
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller},LINKED://{address}:{linked}
advertised.listeners=PLAINTEXT://{address}:{port},LINKED://{entry}:{front}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LINKED:PLAINTEXT
log.dirs=data
min.insync.replicas=2
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
replica.lag.time.max.ms=4000
"""


@dataclass(frozen=True)
class ThreeBrokers:
    """Settings that lead to a cluster, and its brokers by their ids.

    `servers`: the addresses by the protocol of their listeners. `links`: where a test may run links
    to the brokers, as links.py does, and where each leads; clients that begin there stay there.
    """

    settings: Settings
    brokers: Mapping[int, Daemon]
    servers: Mapping[str, str]
    links: Mapping[Place, Place]

    def stop(self, number: int) -> None:
        """Stop one broker, and wait until the others know."""
        self.brokers[number].stop()
        self.await_brokers(len(NUMBERS) - 1)

    def start(self, number: int) -> None:
        """Start a broker again, and wait until it is one of three."""
        self.brokers[number].start()
        self.await_brokers(len(NUMBERS))

    def await_brokers(self, count: int) -> None:
        """Wait until so many brokers answer."""

        def are_there() -> bool:
            if not is_reachable(installed(self.settings).kafka, 5):
                return False
            try:
                return (
                    len(installed(self.settings).kafka.admin().list_topics(timeout=5).brokers)
                    == count
                )
            except KafkaException:  # it asked one that does not answer any more
                forget_admins()
                return False

        wait_until(are_there, f"{count} brokers", START_SECONDS)


@contextmanager
def three_brokers(
    home: Path,
    hosts: Sequence[Host] = (Host(),) * 3,
    secured: SecuredKafka | None = None,
    entry: str = LOOPBACK,
    **given: object,
) -> Iterator[ThreeBrokers]:
    """Run three brokers with Kafka's own defaults, but for writes to two replicas at least.

    `entry` is the address of links to them.
    """
    host = dict(zip(NUMBERS, hosts, strict=True))
    protocols = ("PLAINTEXT", "CONTROLLER", "LINKED", "FRONT", *(LISTENERS if secured else ()))
    ports = {number: {name: daemons.choose_port() for name in protocols} for number in NUMBERS}
    voters = ",".join(f"{n}@{host[n].address}:{at['CONTROLLER']}" for n, at in ports.items())
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    servers = {
        name: ",".join(f"{host[n].address}:{at[name]}" for n, at in ports.items())
        for name in protocols
    }
    defaults = {"replication_factor": 3, "partitions": 2, "kafka_timeout": 30}
    plain = {"home": home, "bootstrap_servers": servers["PLAINTEXT"]}
    settings = load(environ(**plain, **(defaults | given)))
    with ExitStack() as running:
        brokers = {}
        for number, at in ports.items():
            folder, address = home / f"broker-{number}" / "kafka", host[number].address
            own = {"number": number, "address": address, "voters": voters, "entry": entry}
            own |= {"port": at["PLAINTEXT"]} | {name.lower(): port for name, port in at.items()}
            properties = PROPERTIES.format(**own)
            if secured:
                more = {name: at[name] for name in LISTENERS}
                properties = secured.properties(properties, address, more)
            brokers[number] = _formatted(folder, properties, cluster, host[number], running)
        links = {(entry, at["FRONT"]): (host[n].address, at["LINKED"]) for n, at in ports.items()}
        found = ThreeBrokers(settings, brokers, servers, links)
        try:
            for daemon in brokers.values():
                daemon.start()
            found.await_brokers(len(NUMBERS))
            if secured:
                add_user(settings)
            yield found
        finally:
            # Clients go first: librdkafka can abort the process (its issue 4605) when brokers end
            # that have not answered for a group's coordinator.
            forget_admins()
            for daemon in brokers.values():
                daemon.stop(KILL_SECONDS)  # what they hold is of no use any more


def _formatted(
    folder: Path, properties: str, cluster: str, host: Host, running: ExitStack
) -> Daemon:
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / "logs").mkdir(parents=True)
    folder.mkdir(parents=True)
    running.enter_context(host.disk(folder / DISK))
    (folder / "log4j2.properties").write_text(broker.LOG4J2)
    (folder / "server.properties").write_text(properties)
    run = [find_java(), "-Xmx384m", *JVM, broker.LOGGING, "-cp", broker.classpath()]
    tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
    subprocess.run(
        [*run, *tool, "--config", "server.properties"],
        cwd=folder,
        env=broker.ENVIRONMENT,
        check=True,
        capture_output=True,
    )
    return Daemon(
        "kafka",
        host.inside([*run, "kafka.Kafka", "server.properties"]),
        broker.ENVIRONMENT,
        folder.parent / "logs" / "output.log",
        folder / "kafka.pid",
    )
