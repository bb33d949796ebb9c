"""The topology of a real installation: three brokers, each on a host of its own.

A part starts when it is first asked for, and is there until the tests end.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from shardpost.embedded.daemons import Daemon, wait_until
from shardpost.kafka.topic_metadata import cluster_metadata
from shardpost.settings import Settings
from tests.support.network import Host, Network, network
from tests.support.three_brokers import (
    NUMBERS,
    START_SECONDS,
    ThreeBrokers,
    three_brokers,
)

KILL_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """A process of the cluster, and its host."""

    daemon: Daemon
    host: Host

    def kill(self) -> None:
        """SIGKILL it, and wait for its end."""
        self._signal(signal.SIGKILL)
        wait_until(lambda: not self.daemon.alive, f"the end of {self.daemon.name}", KILL_SECONDS)

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

    def _signal(self, number: int) -> None:
        pid = self.daemon.pid
        assert pid, f"{self.daemon.name} does not run"
        os.kill(pid, number)


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
        return self._running.enter_context(three_brokers(home, self._broker_hosts))

    @cached_property
    def _broker_hosts(self) -> list[Host]:
        return [self.network.host() for _ in NUMBERS]

    @property
    def settings(self) -> Settings:
        """Settings that lead to this Kafka."""
        return self.kafka.settings

    def leader(self, topic: str, partition: int = 0) -> "Part":
        """Return the broker that leads a partition."""
        found = cluster_metadata(self.settings).topics[topic].partitions[partition].leader
        return self.brokers[found]

    def await_replicas(self) -> None:
        """Wait until each partition has all of its replicas in sync, and all brokers answer."""
        self.kafka.await_brokers(len(NUMBERS))
        wait_until(self._are_in_sync, "all replicas in sync", START_SECONDS)

    def _are_in_sync(self) -> bool:
        topics = cluster_metadata(self.settings).topics.values()
        partitions = [one for topic in topics for one in topic.partitions.values()]
        return all(len(one.isrs) == len(one.replicas) for one in partitions)

    @cached_property
    def brokers(self) -> dict[int, Part]:
        """The brokers by their ids."""
        of_each = zip(self.kafka.brokers.items(), self._broker_hosts, strict=True)
        return {number: Part(daemon, host) for (number, daemon), host in of_each}


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Give a cluster of which nothing runs yet; all that was started ends with the block."""
    with network() as net, ExitStack() as running:
        yield Cluster(folder, net, running)
