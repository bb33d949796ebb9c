"""Parts of the cluster die or are cut off for 30 s, at random moments of whatever runs.

`--faults N` is how many there are, `--load N` how much work there is meanwhile, `--seed` repeats
their order and their moments; `-o log_cli=true --log-level=INFO` tells each.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.support.cluster import Cluster
from tests.support.how_far import by_seed
from tests.support.installation import DONE, WORK, Installation
from tests.support.job_process import Job, wait_for

FAULT_SECONDS = 30.0
FIRST_GUESS_SECONDS = 30.0

log = logging.getLogger(__name__)

Fault = Callable[[Job], AbstractContextManager[object]]


def faults_of(cluster: Cluster, at_work: Installation) -> dict[str, Fault]:
    """Return what can happen to a part of the cluster while a job runs."""
    parts = {f"worker {n}": one for n, one in enumerate(cluster.spark.workers, 1)}
    parts["store"] = cluster.store.part
    found: dict[str, Fault] = {"driver killed": dead, "driver halted": halted}
    found["driver cut off"] = of_any_job(at_work.host.cut_off)
    for name, part in parts.items():
        found[f"{name} killed"] = of_any_job(part.killed)
        found[f"{name} cut off"] = of_any_job(part.cut_off)
    return found


def of_any_job(fault: Callable[[], AbstractContextManager[object]]) -> Fault:
    return lambda _job: fault()


@contextmanager
def dead(job: Job) -> Iterator[None]:
    job.kill()
    yield


@contextmanager
def halted(job: Job) -> Iterator[None]:
    job.stop()
    try:
        yield
    finally:
        job.resume()


def last_step(job: Job) -> str:
    steps = [line for line in job.log.read_text().splitlines() if " step: " in line]
    return steps[-1].rpartition(" step: ")[2] if steps else "its start"


class Rounds:
    """Each round: one job, one fault, and jobs until one is done."""

    def __init__(self, cluster: Cluster, at_work: Installation) -> None:
        self._cluster, self._at_work = cluster, at_work
        self._faults = faults_of(cluster, at_work)
        self._seconds = dict.fromkeys(WORK, FIRST_GUESS_SECONDS)  # of each job, as it took last

    def undisturbed(self, work: str) -> None:
        """Do a piece of work that nothing happens to."""
        self._at_work.give(work)
        self._finish(work)
        self._at_work.holds(work)

    def disturbed(self, random_: random.Random) -> str | None:
        """Do a piece of work to which something happens; return what, in a line.

        None if it ended before.
        """
        work, fault = random_.choice([*WORK]), random_.choice([*self._faults])
        moment = random_.uniform(0.2, 1) * self._seconds[work]
        self._at_work.give(work)
        job = self._at_work.job(work)
        try:
            if job.ends_within(moment):
                assert job.wait() in DONE[work], job.log.read_text()
                self._at_work.holds(work)
                self._seconds[work] = moment
                return None
            step = last_step(job)
            with self._faults[fault](job):
                job.ends_within(FAULT_SECONDS)
            code = job.wait(400)
        finally:
            job.kill()
        line = f"{work}: {fault} after {moment:.1f} s ({step}): {code}"
        wait_for(lambda: self._cluster.store.accepts, "the store")
        if code not in DONE[work]:
            line += f" {job.why_failed()}" if fault != "driver killed" else ""
            self._finish(work)
        self._at_work.holds(work)
        return line

    def _finish(self, work: str) -> None:
        began = time.monotonic()
        job = self._at_work.job(work)
        try:
            assert job.wait(400) in DONE[work], job.log.read_text()
        finally:
            job.kill()
        self._seconds[work] = time.monotonic() - began


@pytest.mark.timeout(14_400)
def test_whatever_dies_or_is_cut_off_at_any_moment_nothing_is_lost_and_nothing_done_twice(
    cluster: Cluster, at_work: Installation, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.option.faults
    random_ = by_seed("faults")
    rounds = Rounds(cluster, at_work)
    rounds.undisturbed("compaction")
    number = 0
    while number < count:
        began = time.monotonic()
        if line := rounds.disturbed(random_):
            number += 1
            log.info("%d of %d, %.0f s: %s", number, count, time.monotonic() - began, line)
