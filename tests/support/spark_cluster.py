"""A Spark standalone cluster: a master, and workers that are not where the driver is."""

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from shardpost.embedded import daemons
from tests.support.job_process import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
MASTER, WORKER = (f"org.apache.spark.deploy.{role}" for role in ("master.Master", "worker.Worker"))

# The optimizing compiler, and threads of a collector, cost a short life more than they gain it.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    """A cluster: the URL of its master, and the folder of what its workers write."""

    master: str
    work: Path
    workers: list[psutil.Process] = field(default_factory=list)

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that there are now."""
        children = (child for worker in self.workers for child in worker.children())
        return [child for child in children if _is_executor(child)]

    def executor_logs(self) -> list[str]:
        """Return what each executor wrote; its first line is its command."""
        return [path.read_text() for path in self.work.glob("*/app-*/*/stderr")]


def _is_executor(process: psutil.Process) -> bool:
    """Tell it from what a worker forks to start one."""
    with suppress(psutil.Error):
        return process.name() == "java" and EXECUTOR in process.cmdline()
    return False


def kill_executor(executor: psutil.Process) -> None:
    """SIGKILL an executor with its Python workers, as where its machine is lost."""
    tree = [executor, *executor.children(recursive=True)]
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(tree, timeout=30)


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
def spark_cluster(
    folder: Path, address: str, workers: Sequence[str], *, memory: str = "1g"
) -> Iterator[Cluster]:
    """Run a master at an address, and a worker at each of those, until the block ends."""
    port = daemons.choose_port()
    found = Cluster(f"spark://{address}:{port}", folder / "work")
    with ExitStack() as running:
        begun = []
        master = (MASTER, *_at(address), "--port", str(port))
        log, _ = running.enter_context(_running(folder / "master.log", master))
        wait_for(lambda: "New state: ALIVE" in log.read_text(), "the master")
        for number, host in enumerate(workers):
            own = ("--cores", "1", "--work-dir", str(found.work / str(number)))
            command = (WORKER, *_at(host), "--memory", memory, *own, found.master)
            log, pid = running.enter_context(_running(folder / f"worker-{number}.log", command))
            found.workers.append(psutil.Process(pid))
            begun.append(log)
        wait_for(
            lambda: all("Successfully registered" in log.read_text() for log in begun), "workers"
        )
        yield found


def _at(host: str) -> tuple[str, ...]:
    return ("--host", host, "--webui-port", "0")


@contextmanager
def _running(log: Path, command: Sequence[str]) -> Iterator[tuple[Path, int]]:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(log.parent),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
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
            yield log, process.pid
        finally:
            process.terminate()
            process.wait(30)
