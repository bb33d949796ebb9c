"""Dispatches that are killed or halted at each step: one command, one run, each decision once."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from shardpost.adapters import topics
from shardpost.adapters.run_list import held
from shardpost.dispatching.partition import FRESH_SECONDS
from shardpost.settings import Settings
from tests.airflow_server import AirflowServer, airflow_server
from tests.broker.asking import KEY, ask, decided, history, request, run
from tests.job_process import wait_for

PAUSING = Path(__file__).parent / "pausing_dispatch.py"
STEPS = [
    "fence",
    "read commands",
    "see ends",
    "read requests",
    "commit commands",
    "commit releases",
    "start",
    "started",
    "commit started",
]


@pytest.fixture
def airflow() -> Iterator[AirflowServer]:
    with airflow_server(weekly_email=False) as played:
        yield played


@pytest.fixture
def ready(settings: Settings, airflow: AirflowServer) -> Settings:
    own = settings.model_copy(update={"partitions": 1, **airflow.environ()})
    topics.apply(own)
    return own


class Dispatch:
    """A process that dispatches, and stops itself at a step."""

    def __init__(self, settings: Settings, step: str) -> None:
        others = {n: text for n, text in os.environ.items() if not n.startswith("SHARDPOST_")}
        self._process = subprocess.Popen(
            [sys.executable, str(PAUSING), step],
            env=others | settings.environ(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(self._paused, f"a dispatch to stop itself at {step}", seconds=60)

    def _paused(self) -> bool:
        assert self._process.poll() is None, self._process.communicate()
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)

    def resume(self) -> tuple[int, str]:
        """Let it go on to its end; return its exit code and what it said."""
        psutil.Process(self._process.pid).resume()
        _, said = self._process.communicate(timeout=120)
        return self._process.returncode, said


def states(settings: Settings) -> list[str]:
    return [str(entry.command.state) if entry.command else "free" for entry in history(settings)]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_next_dispatch_ends_as_an_unbroken_one(
    ready: Settings, airflow: AirflowServer, step: str
) -> None:
    ask(ready, "before", request())
    run(ready)
    airflow.end_all()
    for key, value in ((KEY, request()), (KEY, request({"x": 1})), ("bad", b"?"), (KEY, request())):
        ask(ready, key, value)
    Dispatch(ready, step).kill()
    run(ready)
    assert [entry.key for entry in held(ready)] == [KEY]
    assert len(airflow.started) == len(set(airflow.started)) == 2
    assert decided(ready) == [("conflict", KEY), ("refused", "bad")]
    assert states(ready) == ["issued", "started", "issued", "free", "started"]
    airflow.end_all()
    assert run(ready).released == 1


def test_a_halted_dispatch_that_wakes_up_has_no_effect(
    ready: Settings, airflow: AirflowServer, tmp_path: Path
) -> None:
    elsewhere = ready.model_copy(update={"home": tmp_path / "another-machine"})
    ask(ready, KEY, request())
    halted = Dispatch(elsewhere, "start")
    since = time.monotonic()
    run(ready)  # another takes over, and starts what the halted one had issued
    airflow.end_all()
    run(ready)
    airflow.delete(airflow.started[0])  # now Airflow itself would not refuse it any more
    wait_for(lambda: time.monotonic() > since + FRESH_SECONDS, "the halt to be noticeable")
    before = states(ready)
    code, said = halted.resume()
    assert (code, len(airflow.started)) == (1, 1), said
    assert "fenced: a newer writer has taken over" in said
    assert states(ready) == before == ["issued", "started", "free"]


def test_a_halted_dispatch_cannot_commit_commands_any_more(
    ready: Settings, airflow: AirflowServer, tmp_path: Path
) -> None:
    ask(ready, KEY, request())
    halted = Dispatch(ready.model_copy(update={"home": tmp_path / "another"}), "commit commands")
    run(ready)
    code, said = halted.resume()
    assert (code, states(ready)) == (1, ["issued", "started"]), said
    assert len(airflow.started) == 1


def test_two_dispatches_at_once_start_each_run_once(
    ready: Settings, airflow: AirflowServer
) -> None:
    for number in range(20):
        ask(ready, f"{KEY}/{number % 10}", request())
    with ThreadPoolExecutor(2) as pool:
        tallies = [done.result() for done in [pool.submit(run, ready) for _ in range(2)]]
    assert sum(tally.issued for tally in tallies) == 10
    assert len(airflow.started) == len(set(airflow.started)) == 10


def test_a_second_dispatch_waits_for_the_first_and_says_for_whom(
    ready: Settings, airflow: AirflowServer
) -> None:
    halted = Dispatch(ready, "read requests")
    try:
        with pytest.raises(Exception, match="the dispatch of run requests is already running"):
            run(ready.model_copy(update={"lock_wait": 0.1}))
    finally:
        halted.kill()
