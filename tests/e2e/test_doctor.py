"""`shardpost doctor` beside a whole stack: it finds a paused DAG, and nothing else."""

import httpx

from tests.e2e.conftest import paused
from tests.support.command_line import CommandLine


def wrong(stack: CommandLine, code: int) -> dict[str, str]:
    found = stack.json("doctor", code=code)
    return {one["check"]: one["cure"] for one in found if one["state"] in ("warning", "error")}


def test_a_whole_stack_is_well_until_a_dag_is_paused(stack: CommandLine, api: httpx.Client) -> None:
    stack("compact")
    assert wrong(stack, code=0) == {}
    with paused(api, "sweep_dead_letters"):
        found = wrong(stack, code=3)
    assert found == {"dag sweep_dead_letters": "shardpost airflow dags unpause sweep_dead_letters"}
    assert wrong(stack, code=0) == {}
