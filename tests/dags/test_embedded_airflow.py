"""The embedded Airflow: its command, its schedules, and a home that was copied."""

import shutil
import subprocess
import sys
from pathlib import Path

from airflow.configuration import conf, write_default_airflow_configuration_if_needed

from shardpost.embedded.airflow import (
    BIN,
    disable_schedules,
    process_environment,
    require_task_options,
)
from shardpost.settings import Settings, load
from tests.conftest import environ
from tests.support.command_line import CommandLine


def test_it_does_not_say_that_it_cannot_draw_dags(task_environment: Path) -> None:
    shardpost = CommandLine(environ(home=task_environment))
    done = shardpost.run("airflow", "dags", "list-import-errors", "--local")
    assert done.returncode == 0, done.stderr
    assert "No data found" in done.stdout
    assert "graphviz" not in done.stdout + done.stderr


WRONG = '{"weekly_email.sent": {"queue": "q"}, "*": {"quue": "q"}}'


def test_up_refuses_wrong_options_of_tasks_and_starts_nothing(
    stack_environ: dict[str, str], tmp_path: Path
) -> None:
    shardpost = CommandLine(stack_environ | {"SHARDPOST_TASK_OPTIONS": WRONG})
    line = shardpost.refused("up", code=2)
    assert "SHARDPOST_TASK_OPTIONS: *: no option quue: did you mean queue?; " in line
    assert "no DAG or task weekly_email.sent: did you mean weekly_email.send?" in line
    assert {one["state"] for one in shardpost.json("status").values()} == {"down"}
    (own := tmp_path / "us.env").write_text(f"SHARDPOST_TASK_OPTIONS={WRONG}\n")
    named = CommandLine(stack_environ | {"SHARDPOST_INSTALLATIONS": f"us={own}"})
    assert named.refused("up", code=2) == line


def test_right_options_of_tasks_are_accepted(tmp_path: Path) -> None:
    options = '{"weekly_email.send": {"queue": "q"}}'
    require_task_options(Settings(home=tmp_path, task_options=options))


def test_airflow_runs_by_schedule_unless_that_is_disabled() -> None:
    assert conf.getboolean("scheduler", "use_job_schedule")  # of the Airflow of these tests


def test_airflow_starts_no_scheduled_run_where_schedules_are_disabled(tmp_path: Path) -> None:
    settings = load({"SHARDPOST_HOME": str(tmp_path)})
    disable_schedules(settings)
    assert runs_by_schedule(settings) == "False"


def runs_by_schedule(settings: Settings) -> str:
    """Return what Airflow itself reads of its setting."""
    command = [str(BIN / "airflow"), "config", "get-value", "scheduler", "use_job_schedule"]
    done = subprocess.run(
        command, env=process_environment(settings), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# Starts as the command `airflow` does, which writes airflow.cfg where none is; prints all settings.
READ = """
from airflow.configuration import write_default_airflow_configuration_if_needed
conf = write_default_airflow_configuration_if_needed()
for section, options in conf.as_dict(display_source=False, display_sensitive=True).items():
    for option, text in options.items():
        print(f"{section}.{option} = {text}")
"""


def test_a_copied_configuration_names_no_path_of_the_home_it_came_from(
    task_environment: Path, tmp_path: Path
) -> None:
    old, new = _settings(task_environment), _settings(tmp_path)
    write_default_airflow_configuration_if_needed()
    shutil.copytree(old.home / "airflow", new.home / "airflow")
    assert str(old.home) in (new.home / "airflow" / "airflow.cfg").read_text()
    found = _read(new)
    assert f"database.sql_alchemy_conn = sqlite:///{new.home}/airflow/airflow.db" in found
    assert [line for line in found if str(old.home) in line] == []


def _settings(home: Path) -> Settings:
    return load({"SHARDPOST_HOME": str(home)})


def _read(settings: Settings) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", READ],
        env=process_environment(settings),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
