"""Clocks of hosts that are apart: a broker's, a worker's, the driver's.

Clocks of Python are moved ahead only: librdkafka waits until a time of day, and one that is past is
no wait.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, Part
from tests.support.installation import DONE, WORK, Installation
from tests.support.moved_clock import moved

HOUR = 3600
# Object stores refuse signatures that are older than fifteen minutes.
WITHIN_SIGNATURES = 600


@contextmanager
def restarted(part: Part, variables: Mapping[str, str]) -> Iterator[None]:
    """Have a part run with more variables until the block ends."""
    part.kill()
    replace(part, daemon=replace(part.daemon, env={**part.daemon.env, **variables})).start()
    try:
        yield
    finally:
        part.kill()
        part.start()


def all_goes_on(at_work: Installation) -> None:
    for work in WORK:
        at_work.give(work)
        job = at_work.job(work)
        try:
            assert job.wait(400) in DONE[work], job.log.read_text()
        finally:
            job.kill()
        at_work.holds(work)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_broker_whose_clock_is_an_hour_off_changes_nothing(
    cluster: Cluster, at_work: Installation, clock_library: Path, seconds: int
) -> None:
    with restarted(
        cluster.leader(at_work.settings.topic("positions")), moved(clock_library, seconds)
    ):
        cluster.await_replicas()
        all_goes_on(at_work)
    cluster.await_replicas()


def test_a_worker_whose_clock_is_ahead_changes_nothing(
    cluster: Cluster, at_work: Installation, clock_library: Path
) -> None:
    with restarted(cluster.spark.workers[0], moved(clock_library, WITHIN_SIGNATURES)):
        all_goes_on(at_work)


def test_a_driver_whose_clock_is_ahead_changes_nothing(
    at_work: Installation, clock_library: Path
) -> None:
    at_work.job_environ = moved(clock_library, WITHIN_SIGNATURES)
    all_goes_on(at_work)


def test_a_driver_that_the_store_does_not_believe_says_so_and_writes_nothing(
    at_work: Installation, clock_library: Path
) -> None:
    at_work.give("compaction")
    at_work.job_environ = moved(clock_library, HOUR)
    job = at_work.job("compaction")
    assert job.wait(400) == 1
    assert "RequestTimeTooSkewed" in job.why_failed()
    at_work.job_environ = {}
    all_goes_on(at_work)
