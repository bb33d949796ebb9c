"""A Docker engine of the tests' own: no registry, and no network but its own.

It runs in a network namespace, so what it publishes is on the loopback of that namespace alone.
Images are built by the same engine while it has this machine's network: package registries are
reached then, and no container of ours runs.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardpost.embedded.daemons import wait_until

START_SECONDS = 60.0
NEEDED = ("dockerd", "containerd", "docker", "debootstrap", "ip", "nsenter", "iptables", "go")
NO_BRIDGE = ("--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")


def require() -> None:
    """Skip the test, by the name of what is missing."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a Docker engine in a network namespace")
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        packages = "apt-get install --no-install-recommends docker.io debootstrap iproute2 golang"
        pytest.skip(f"missing: {', '.join(missing)} ({packages})")


def find(name: str) -> str:
    """Return the path of a program of the environment or of this machine."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"no {name}: run make setup"
    return found


def call(*command: str, ends: Container[int] = (0,), **given: Any) -> str:
    """Run a command until it ends with one of these codes; return its standard output.

    Fail with all that it said otherwise.
    """
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, **given)
    what = f"{' '.join(command)}: exit code {done.returncode}"
    assert done.returncode in ends, f"{what}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


@dataclass(frozen=True)
class Engine:
    """The folder of an engine; `namespace` is the one in which its containers are."""

    folder: Path
    namespace: str

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables by which clients find it."""
        return {**os.environ, "DOCKER_HOST": f"unix://{self._socket}", "DOCKER_BUILDKIT": "0"}

    @property
    def _socket(self) -> Path:
        return self.folder / "docker.sock"

    def docker(self, *arguments: str) -> str:
        """Run `docker`; return what it says."""
        return call("docker", *arguments, env=self.environ)

    def has_image(self, name: str) -> bool:
        """Tell whether it has an image, as of an earlier run in a folder that was kept."""
        return bool(self.docker("images", "--quiet", name).strip())

    @contextmanager
    def with_registries(self) -> Iterator[None]:
        """Have it run in this machine's network until the block ends, to build images."""
        with self._running([], NO_BRIDGE):
            yield

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Have it run in a network of its own until the block ends."""
        call("ip", "netns", "add", self.namespace)
        try:
            call("ip", "-n", self.namespace, "link", "set", "lo", "up")
            with self._running(["nsenter", f"--net=/run/netns/{self.namespace}"], ()):
                yield
        finally:
            call("ip", "netns", "delete", self.namespace)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have its folder to itself until the block ends: a kept one may be in use."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pytest.fail(f"{self.folder}: expected a folder that is free, found one in use")
            yield

    @contextmanager
    def _running(self, inside: list[str], options: tuple[str, ...]) -> Iterator[None]:
        with (self.folder / "dockerd.log").open("ab") as log:
            process = subprocess.Popen(
                [*inside, "dockerd", *options, *self._own_files()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: self._answers(process), "dockerd", START_SECONDS)
            yield
        finally:
            self._stop(process)

    def _own_files(self) -> list[str]:
        """Return the options by which nothing of it is outside of its folder."""
        return [
            *("--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec")),
            *("--pidfile", str(self.folder / "pid"), "--host", f"unix://{self._socket}"),
            *("--group", "root", "--live-restore=false"),
        ]

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, (self.folder / "dockerd.log").read_text()[-3000:]
        asked = ["docker", "version", "--format", "{{.Server.Version}}"]
        return not subprocess.run(
            asked, env=self.environ, capture_output=True, check=False
        ).returncode

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop it, with its containers and its containerd; what does not go is killed."""
        tree: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for left in psutil.wait_procs(tree, timeout=5)[1]:
            with suppress(psutil.NoSuchProcess):
                left.kill()
        process.kill()
        process.wait()

    def remove(self) -> None:
        """Remove its folder, with what is still mounted in it."""
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Compose:
    """The system of a compose file in a folder, on an engine."""

    engine: Engine
    folder: Path

    def __call__(self, *arguments: str, **given: Any) -> str:
        """Run `docker compose`; return its standard output."""
        command = find("docker-compose")
        return call(command, *arguments, cwd=self.folder, env=self.engine.environ, **given)

    def states(self) -> dict[str, tuple[str, str]]:
        """Return {service: (its state, its health)} of all that run or ran."""
        lines = self("ps", "--all", "--format", "json").splitlines()
        found = [json.loads(line) for line in lines if line]
        return {one["Service"]: (one["State"], one["Health"]) for one in found}

    def python(self, service: str, script: str, *arguments: str) -> str:
        """Run a Python script in a service's container; return its standard output."""
        return self("exec", "-T", service, "python", "-", *arguments, input=script)

    def kill_process(self, service: str) -> None:
        """SIGKILL the first process of a service, as a crash would: its container comes again."""
        container = self("ps", "--quiet", service).strip()
        pid = self.engine.docker("inspect", "--format", "{{.State.Pid}}", container).strip()
        psutil.Process(int(pid)).kill()
