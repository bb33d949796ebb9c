"""A Spark standalone cluster of one worker, which is not on loopback."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from shardpost.embedded import daemons
from tests.support.job_process import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
MASTER, WORKER = (f"org.apache.spark.deploy.{role}" for role in ("master.Master", "worker.Worker"))


@dataclass(frozen=True)
class Cluster:
    """A cluster: the URL of its master, its address, and the folder of its worker."""

    master: str
    address: str
    work: Path

    def executor_logs(self) -> list[str]:
        """Return what each executor wrote; its first line is its command."""
        return [path.read_text() for path in self.work.glob("app-*/*/stderr")]


def own_address() -> str | None:
    """Return this machine's address in its network; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent; RFC 5737: an address of nobody's
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") else found


@contextmanager
def spark_cluster(folder: Path, address: str) -> Iterator[Cluster]:
    """Run a master and a worker with two cores until the block ends."""
    port = daemons.choose_port()
    master = f"spark://{address}:{port}"
    at = ("--host", address, "--webui-port", "0")
    more = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
    with _running(folder / "master.log", (MASTER, *at, "--port", str(port))) as log:
        wait_for(lambda: "New state: ALIVE" in log.read_text(), "the master")
        with _running(folder / "worker.log", (WORKER, *at, *more, master)) as log:
            wait_for(lambda: "Successfully registered" in log.read_text(), "the worker")
            yield Cluster(master, address, folder / "work")


@contextmanager
def _running(log: Path, command: Sequence[str]) -> Iterator[Path]:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(log.parent),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *command],
            env=environ,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield log
        finally:
            process.terminate()
            process.wait(30)
