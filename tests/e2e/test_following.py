"""Scheduled compactions that follow, in an Airflow that starts one each minute."""

import itertools
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from shardpost.embedded import daemons
from tests.conftest import environ
from tests.e2e.conftest import UNSCHEDULED, client_of, eventually, processes_of
from tests.support.command_line import CommandLine
from tests.support.compacting import starter
from tests.support.reference import Fold, position, produce, published

RUNS = "/api/v2/dags/compact_positions/dagRuns"


def scheduled(api: httpx.Client) -> list[dict[str, Any]]:
    """Return the runs, the first that began first."""
    found = (
        api.get(RUNS, params={"limit": 100, "order_by": "run_after"})
        .raise_for_status()
        .json()["dag_runs"]
    )
    return [run for run in found if run["run_type"] == "scheduled"]


def ended(api: httpx.Client, run: dict[str, Any]) -> str:
    """Return why a run says that following ended; "" if it has not."""
    path = f"{RUNS}/{quote(run['dag_run_id'])}/taskInstances/compact/xcomEntries/return_value"
    found = api.get(path)
    return str(found.json()["value"]["following"]["ended"]) if found.is_success else ""


@pytest.mark.one_of("whole systems")
def test_each_run_takes_over_from_the_one_before_without_a_gap(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    home = tmp_path_factory.mktemp("following")
    follow = UNSCHEDULED | {"follow": "on", "compact_schedule": "* * * * *"}
    stack = CommandLine(environ(home=home, partitions=2, **follow, **free))
    fold, number = Fold(), itertools.count()

    def is_published() -> bool:
        return published(stack.settings) == fold.holders()

    def come() -> None:
        """Let a position come, and wait until its holder is published."""
        records = [position(str(next(number)), "client1", "NASDAQ")]
        produce(stack.settings, records)
        fold.add(records)
        eventually(is_published, "the holders of a new position are not published")

    try:
        stack("up")
        fold.add(starter())
        with client_of(stack.settings) as api:
            for nth in range(2):

                def is_over(nth: int = nth) -> bool:
                    come()
                    runs = scheduled(api)
                    return len(runs) > nth + 1 and runs[nth]["state"] == "success"

                eventually(is_over, "a run does not end when the next one follows")
                assert " follows since " in ended(api, scheduled(api)[nth])
            assert [run["state"] for run in scheduled(api)[2:3]] == ["running"]
            come()
        assert stack.json("status")["follow"]["state"] == "up"
    finally:
        stack("down")
    assert processes_of(home) == []
