"""Run requests in a real Airflow: each command one run, released when it ends or is deleted."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.locks.locks import exclusive
from shardpost.run_requests import request_topics
from shardpost.run_requests.model.commands import CommandState
from shardpost.settings import Settings
from tests.e2e.conftest import eventually, paused
from tests.support import decisions
from tests.support.command_line import CommandLine
from tests.support.how_far import up_to
from tests.support.installed import installed

KEYS, AT_ONCE = up_to(24, 8), 8
SHARE = KEYS * 10 // AT_ONCE  # of the requests
ASKED = json.dumps({"Dag": "weekly_email", "Conf": {"week": "2020-W01", "dry_run": True}})


def runs(api: httpx.Client, dag: str) -> dict[str, dict[str, Any]]:
    """Return the runs of a DAG that were requested, by id."""
    found: list[dict[str, Any]] = []
    while True:
        query = {"limit": 100, "offset": len(found)}
        page = api.get(f"/api/v2/dags/{dag}/dagRuns", params=query).raise_for_status().json()
        found += page["dag_runs"]
        if len(found) >= page["total_entries"]:
            return {
                run["dag_run_id"]: run for run in found if run["dag_run_id"].startswith("request__")
            }


def issued(settings: Settings, prefix: str) -> list[str]:
    """Return the run ids of every command that was issued under keys with that prefix."""
    return [
        entry.command.run_id
        for partition in range(request_topics.partitions(installed(settings).kafka))
        for entry in request_topics.command_entries(installed(settings).kafka, partition)
        if entry.command
        and entry.command.state is CommandState.ISSUED
        and entry.key.startswith(prefix)
    ]


def path_of(run: str) -> str:
    return f"/api/v2/dags/weekly_email/dagRuns/{quote(run)}"


def fail(api: httpx.Client, run: str) -> bool:
    """Mark a run failed; False where Airflow's SQLite was locked for too long."""
    try:
        return api.patch(path_of(run), json={"state": "failed"}).is_success
    except httpx.TimeoutException:
        return False


def is_gone(api: httpx.Client, run: str) -> bool:
    """Delete a run; False where SQLite was locked for too long."""
    try:
        return api.delete(path_of(run)).status_code in (204, 404)
    except httpx.TimeoutException:
        return False


def test_a_request_starts_a_run_by_itself_and_its_end_frees_the_key(
    stack: CommandLine, api: httpx.Client
) -> None:
    def ask(*more: str) -> Any:
        asked = ("runs", "request", "compaction/e2e", "--dag", "compact_positions", *more)
        return stack.json(*asked, "--wait")

    with exclusive(
        installed(stack.settings).files, COMPACT_POSITIONS.name, "a test", wait=60
    ):  # the run waits for it, and does not end unseen
        first = ask("--by", "anna")
        again = ask("--by", "ben")
        assert (first["fate"], again["fate"]) == ("won", "already running")
        assert (again["run_id"], again["requested_by"]) == (first["run_id"], "anna")
        assert [row["key"] for row in stack.json("runs", "list")] == ["compaction/e2e"]

    def state(asked: Any) -> str:
        path = f"/api/v2/dags/compact_positions/dagRuns/{quote(asked['run_id'])}"
        return str(api.get(path).raise_for_status().json()["state"])

    eventually(lambda: state(first) == "success", "the run does not end well")
    stack("runs", "dispatch")
    assert stack.json("runs", "list") == []


@pytest.mark.one_of("run requests in an Airflow")
def test_ten_requests_for_each_of_many_keys_become_one_run_for_each(
    stack: CommandLine, api: httpx.Client
) -> None:
    def produce(number: int) -> None:
        client = installed(stack.settings).kafka.producer()
        for n in range(number * SHARE, (number + 1) * SHARE):
            key = f"many/{n % KEYS}"
            client.produce(stack.settings.topic("run-requests"), ASKED, key)
        assert client.flush(30) == 0

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(produce, range(AT_ONCE)))
    stack("runs", "dispatch")  # beside those that Airflow starts by itself
    made = issued(stack.settings, "many/")
    assert len(made) == len(set(made)) == KEYS
    assert set(runs(api, "weekly_email")) == set(made)

    with paused(api, "dispatch_run_requests"), paused(api, "weekly_email"):
        found = runs(api, "weekly_email")
        gone = next(run for run in made if found[run]["state"] == "queued")
        eventually(lambda: is_gone(api, gone), f"{gone} cannot be deleted")
        for run in set(made) - {gone}:
            eventually(partial(fail, api, run), f"{run} cannot be marked failed")
    stack("runs", "dispatch")
    assert [row for row in stack.json("runs", "list") if row["key"].startswith("many/")] == []
    released = [one for one, _ in decisions.list_all(stack.settings) if gone in one.why]
    assert [str(one.kind) for one in released] == ["released"]


@pytest.mark.one_of("run requests in an Airflow")
def test_what_airflow_rejects_is_refused_and_its_key_is_free(
    stack: CommandLine, api: httpx.Client
) -> None:
    def refused(dag: str, conf: str = "{}") -> str:
        asked = ("runs", "request", "refused/e2e", "--dag", dag, "--conf", conf, "--wait")
        result = stack.json(*asked, code=3)
        assert result["fate"] == "refused"
        return str(result["why"])

    assert "Invalid input for param week" in refused("weekly_email", '{"week": "W47"}')
    assert "cannot be requested" in refused("dispatch_run_requests")
    with paused(api, "weekly_email"):
        assert "DAG weekly_email is paused" in refused("weekly_email")
    assert [row for row in stack.json("runs", "list") if row["key"] == "refused/e2e"] == []
