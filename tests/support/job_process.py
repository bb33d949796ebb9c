"""Real job processes for tests of crashes: spark-submit, its JVM, its Python driver and workers."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from shardpost.checkout import CHECKOUT
from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.spark.jars import archive_options, jars_of, store_conf
from shardpost.spark.job import BY_DEFAULT, JobSpec, document_of
from tests.support.installed import installed
from tests.support.interpreted_plans import plan_conf
from tests.support.network import Host

# Between two looks: at least so long, and so many times as long as the last look took, since most
# ask a server, which works for that; at most so long.
POLL_SECONDS, POLL_FACTOR, LONGEST_POLL = 0.2, 3, 1.0
PAUSING = Path(__file__).parent / "pausing_job.py"
PAUSING_ANYWHERE = Path(__file__).parent / "pausing"


class Job:
    """One spark-submit of a job of ours, killed with all its processes when the test is done."""

    def __init__(
        self,
        settings: Settings,
        job: JobSpec,
        request: object = None,
        *,
        pause_at: str | None = None,
        pause_anywhere_at: str | None = None,
        nth_time: int = 1,
        host: Host = Host(),  # noqa: B008 - a value
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; it pauses at a step of its driver, or the n-th time at one of any process.

        `host` is where the driver is, where workers have to reach it; `more` are variables.
        """
        more = {**(more or {}), **({"SPARK_LOCAL_IP": host.address} if host.namespace else {})}
        if pause_anywhere_at is not None:
            paused = settings.home / f"paused-{time.monotonic_ns()}"
            path = os.pathsep.join(map(str, (PAUSING_ANYWHERE, CHECKOUT)))
            more |= {"PYTHONPATH": path, "PAUSE_AT": pause_anywhere_at}
            more |= {"PAUSE_AT_TIME": str(nth_time), "PAUSED": str(paused)}
        document = BY_DEFAULT if request is None else document_of(request)
        file = str(submit.job_file(job))
        script = [file] if pause_at is None else [str(PAUSING), pause_at, file]
        submitted = submit.submit_command(installed(settings), _conf(settings), settings.home)
        self.log = settings.home / f"{job.name}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                host.inside([*submitted, *script, document]),
                env=submit.job_environment(installed(settings))
                | submit.temporary_files_in(settings.home)
                | more,
                cwd=settings.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._root = psutil.Process(self._process.pid)

    def tree(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    def wait(self, seconds: float = 240) -> int:
        return self._process.wait(seconds)

    def wait_until_paused(self) -> None:
        """Wait until a process of the tree has stopped itself."""
        wait_for(self._paused, "the job to stop itself", self)

    def _paused(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"the job ended before its pause:\n{self.log.read_text()}")
        return any(_status(process) == psutil.STATUS_STOPPED for process in self.tree())

    def why_failed(self) -> str:
        """Return the line that says why it failed; AssertionError where it is not just that."""
        log = self.log.read_text()
        lines = [line for line in log.splitlines() if line.startswith("shardpost: ")]
        assert lines, log
        assert "Traceback" not in log, log
        return lines[-1]

    def ends_within(self, seconds: float) -> bool:
        """Tell whether it ended within so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL every process of the job."""
        if self._process.poll() is None:
            for process in self.tree():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.wait(30)

    def stop(self) -> None:
        """SIGSTOP every process of the job."""
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        """SIGCONT every process of the job."""
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.resume()


@contextmanager
def paused(settings: Settings, job: JobSpec, request: object = None, **where: Any) -> Iterator[Job]:
    """Start a job and give it when it has stopped itself at a step; kill what is left of it."""
    made = Job(settings, job, request, **where)
    try:
        made.wait_until_paused()
        yield made
    finally:
        made.kill()


def kill_at(settings: Settings, job: JobSpec, request: object = None, **where: Any) -> None:
    """Kill a job at a step."""
    with paused(settings, job, request, **where):
        pass


def _conf(settings: Settings) -> dict[str, str]:
    options = (*submit.SHORT_RUN_JIT, *archive_options())
    jars = jars_of("s3") if settings.is_on_store else []
    return (
        submit.submit_conf(*options, more_jars=jars)
        | store_conf(installed(settings).tables)
        | plan_conf()
    )


def _status(process: psutil.Process) -> str | None:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return None


def wait_for(
    condition: Callable[[], bool], what: str, job: Job | None = None, seconds: float = 240
) -> None:
    """Wait for a condition with a deadline."""
    if not is_met_within(seconds, condition):
        log = job.log.read_text() if job else ""
        raise AssertionError(f"{what} took more than {seconds} s\n{log}")


def is_met_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Wait for a condition; tell whether it was met in time."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return True
        now = time.monotonic()
        if now > deadline:
            return False
        time.sleep(min(LONGEST_POLL, max(POLL_SECONDS, POLL_FACTOR * (now - began))))
