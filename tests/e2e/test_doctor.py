"""`shardpost doctor` beside a whole stack: it finds a paused DAG, and nothing else."""

from tests.support.command_line import CommandLine


def wrong(stack: CommandLine, code: int) -> dict[str, str]:
    found = stack.json("doctor", code=code)
    return {one["check"]: one["cure"] for one in found if one["state"] in ("warning", "error")}


def test_a_whole_stack_is_well_until_a_dag_is_paused(stack: CommandLine) -> None:
    stack("compact")
    assert wrong(stack, code=0) == {}
    stack("airflow", "dags", "pause", "sweep_dead_letters", "--yes")
    try:
        found = wrong(stack, code=3)
    finally:
        stack("airflow", "dags", "unpause", "sweep_dead_letters", "--yes")
    assert found == {"dag sweep_dead_letters": "shardpost airflow dags unpause sweep_dead_letters"}
    assert wrong(stack, code=0) == {}
