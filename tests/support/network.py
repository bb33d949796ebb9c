"""A network of hosts on this machine, of which a test may cut off any: real partitions.

Each host is a network namespace on one bridge, with an address of its own. What a cut-off host and
the others send each other is lost in silence: no connection is reset, none can be made. That needs
root. Without root all hosts are loopback, and none can be cut off.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

LOOPBACK = "127.0.0.1"
SUBNETS = range(1, 255)  # 10.213.N.0/24: one for each process of tests
DISK_SIZE = "512m"
DISABLED, FORWARDING = "0", "3"  # states of a bridge's port


@dataclass(frozen=True)
class Host:
    """An address, and how a command runs there; without a namespace, this machine's loopback."""

    address: str = LOOPBACK
    namespace: str | None = None
    port: str | None = None  # of the bridge

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs that command on this host, as the same process."""
        if self.namespace is None:
            return [*command]
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Lose all packets from and to this host until the block ends; skip the test without root.

        What was sent meanwhile arrives when TCP sends it again.
        """
        if self.port is None:
            pytest.skip("only root can cut off a host")
        _run("bridge", "link", "set", "dev", self.port, "state", DISABLED)
        try:
            yield
        finally:
            _run("bridge", "link", "set", "dev", self.port, "state", FORWARDING)

    @contextmanager
    def disk(self, folder: Path) -> Iterator[None]:
        """Have a new folder be a small disk of this host until the block ends; none without root.

        What is on it goes with it.
        """
        folder.mkdir()
        if self.namespace is None:
            yield
            return
        _run("mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(folder))
        try:
            yield
        finally:
            _run("umount", "--lazy", str(folder))


@dataclass
class Network:
    """Hosts that reach each other; `address` is that of this machine among them."""

    address: str = LOOPBACK
    bridge: str | None = None
    hosts: list[Host] = field(default_factory=list)

    def host(self) -> Host:
        """Return a new host."""
        number = len(self.hosts)
        made = Host() if self.bridge is None else self._namespace(self.bridge, number)
        self.hosts.append(made)
        return made

    def _namespace(self, bridge: str, number: int) -> Host:
        name, port = f"{bridge}-{number}", f"{bridge}p{number}"
        address = f"{self.address.rpartition('.')[0]}.{10 + number}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", port, "master", bridge, "up")
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-n", name, "link", "set", device, "up")
        return Host(address, name, port)


@contextmanager
def network() -> Iterator[Network]:
    """Give a network; where root may make none, loopback. It goes with the block."""
    number = next(filter(_is_made, SUBNETS), None) if _may_make() else None
    if number is None:
        yield Network()
        return
    bridge = _name(number)
    try:
        address = f"10.213.{number}.1"
        _run("ip", "address", "add", f"{address}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        yield Network(address, bridge)
    finally:
        _remove(bridge)


def _may_make() -> bool:
    return os.getuid() == 0 and all(map(shutil.which, ("ip", "bridge", "nsenter")))


def _is_made(number: int) -> bool:
    """Make the bridge of that number; False if another process has it, or nobody may make one."""
    bridge = _name(number)
    if (owner := _owner(bridge)) is not None:
        if psutil.pid_exists(owner):
            return False
        _remove(bridge)  # of tests that were killed
    with suppress(subprocess.CalledProcessError):
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "link", "set", bridge, "alias", str(os.getpid()))
        return True
    return False


def _name(number: int) -> str:
    return f"shp{number}"


def _owner(bridge: str) -> int | None:
    """Return the pid of what made a bridge; None if there is no such bridge."""
    try:
        return int(Path(f"/sys/class/net/{bridge}/ifalias").read_text() or os.getpid())
    except OSError:
        return None


def _remove(bridge: str) -> None:
    """Remove a bridge and the namespaces on it; a namespace goes later than its command ends."""
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if line.startswith(f"{bridge}-"):
            name = line.split()[0]
            with suppress(subprocess.CalledProcessError):  # it may have been killed before
                _run("ip", "link", "delete", f"{bridge}p{name.rpartition('-')[2]}")
            _run("ip", "netns", "delete", name)
    _run("ip", "link", "delete", bridge)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
