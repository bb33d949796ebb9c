"""The embedded Airflow without schedules, as the demo starts it."""

import subprocess
from pathlib import Path

import pytest

from shardpost.embedded.airflow_home import BIN, disable_schedules, process_environment
from shardpost.settings import Settings, load


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"SHARDPOST_HOME": str(tmp_path)})


def test_airflow_runs_by_schedule_unless_that_is_disabled(settings: Settings) -> None:
    assert runs_by_schedule(settings) == "True"


def test_airflow_starts_no_scheduled_run_where_schedules_are_disabled(settings: Settings) -> None:
    disable_schedules(settings)
    assert runs_by_schedule(settings) == "False"


def runs_by_schedule(settings: Settings) -> str:
    """Return what Airflow itself reads of its setting."""
    command = [str(BIN / "airflow"), "config", "get-value", "scheduler", "use_job_schedule"]
    done = subprocess.run(
        command, env=process_environment(settings), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
