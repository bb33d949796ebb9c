"""`shardpost airflow`: Airflow's own command line, and nothing but what it was asked for."""

from pathlib import Path

from tests.conftest import environ
from tests.support.command_line import CommandLine


def test_it_does_not_say_that_it_cannot_draw_dags(task_environment: Path) -> None:
    shardpost = CommandLine(environ(home=task_environment))
    done = shardpost.run("airflow", "dags", "list-import-errors", "--local")
    assert done.returncode == 0, done.stderr
    assert "No data found" in done.stdout
    assert "graphviz" not in done.stdout + done.stderr
