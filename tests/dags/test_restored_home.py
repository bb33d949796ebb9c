"""An Airflow home that was copied to another path has nothing to do with the one it came from."""

import shutil
import subprocess
import sys
from pathlib import Path

from airflow.configuration import write_default_airflow_configuration_if_needed

from shardpost.embedded.airflow_home import process_environment
from shardpost.settings import Settings, load

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
