"""The embedded Airflow without schedules, as the demo starts it."""

import subprocess
from pathlib import Path

from airflow.configuration import conf

from shardpost.embedded.airflow_home import BIN, disable_schedules, process_environment
from shardpost.settings import Settings, load


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
