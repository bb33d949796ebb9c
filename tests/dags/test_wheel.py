"""The package as pip installs it for an Airflow of somebody else, without a checkout."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from shardpost.checkout import CHECKOUT, PLUGINS
from tests.support import wheel

# Prints what an Airflow of the package finds; jsonschema's formats are those of all DAGs.
READ = """
import json
from jsonschema import FormatChecker
known = {*FormatChecker.checkers}
from airflow.dag_processing.dagbag import DagBag
from airflow.plugins_manager import get_fastapi_plugins, get_import_errors, get_timetables_plugins
import shardpost.checkout, shardpost.spark.jars, shardpost.spark.submit, shardpost.settings
from shardpost.holders.compaction_job import COMPACT_POSITIONS
bag = DagBag(dag_folder=shardpost.checkout.DAGS)
print("FOUND", json.dumps({
    "dags": sorted(bag.dags), "errors": bag.import_errors, "plugin errors": get_import_errors(),
    "timetables": sorted(name for name in get_timetables_plugins() if "IsoWeeks" in name),
    "apps": [app["url_prefix"] for app in get_fastapi_plugins()[0]],
    "formats": sorted({*FormatChecker.checkers} - known),
    "job": str(shardpost.spark.submit.job_file(COMPACT_POSITIONS)),
    "log4j": shardpost.spark.submit.DRIVER_JVM_OPTIONS[0],
    "home": str(shardpost.settings.load({}).home), "package": shardpost.__file__}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder into which the wheel was installed, beside nothing."""
    site = wheel.install(tmp_path_factory.mktemp("wheel"))
    wheel.interpreter(site.parent / "python")
    return site


def python(installed: Path, *arguments: str, **more: str) -> str:
    """Return what Python prints that has the installed package, in another folder than it."""
    elsewhere = installed.parent / "elsewhere"
    environ = wheel.environment(installed, elsewhere)
    done = subprocess.run(
        [str(installed.parent / "python" / "bin" / "python"), *arguments],
        env=environ | {"AIRFLOW_HOME": os.environ["AIRFLOW_HOME"]} | more,
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_airflow_finds_all_dags_and_plugins_of_an_installed_wheel(installed: Path) -> None:
    shardpost = ("-c", "from shardpost.cli import main; main()")
    dags = installed / "shardpost" / "shipped" / "dags"
    assert python(installed, *shardpost, "dags", "path") == f"{dags}\n"
    none = {"AIRFLOW__CORE__PLUGINS_FOLDER": str(installed / "none")}
    of_airflow = {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", **none}
    said = python(installed, "-c", READ, **of_airflow)
    found: dict[str, Any] = json.loads(said.partition("FOUND ")[2].splitlines()[0])
    assert Path(found["package"]).is_relative_to(installed)
    assert found["dags"] == sorted(file.stem for file in (CHECKOUT / "dags").glob("*.py"))
    assert (found["errors"], found["plugin errors"]) == ({}, {})
    assert found["timetables"] == ["shardpost_iso_weeks.IsoWeeks"]
    assert found["apps"] == ["/shardpost"]
    formats = ["iso-week", "shards", "share", "tables"]
    assert found["formats"] == [f"shardpost-{name}" for name in formats]
    assert Path(found["job"]).is_file()
    assert Path(found["log4j"].partition("file:")[2]).is_file()
    assert found["home"] == str(installed.parent / "elsewhere" / ".shardpost")


def test_a_wheel_has_no_module_that_could_hide_one_of_others(installed: Path) -> None:
    [file] = installed.parent.glob("*.whl")
    names = {name.partition("/")[0] for name in ZipFile(file).namelist()}
    assert {one.name for one in PLUGINS.glob("*.py")} <= names
    assert [name for name in sorted(names) if not name.startswith("shardpost")] == []


def test_an_installed_wheel_reads_settings_of_the_users_own_folder(installed: Path) -> None:
    own = installed.parent / "elsewhere" / ".shardpost"
    own.mkdir(parents=True, exist_ok=True)
    (own / ".env").write_text("SHARDPOST_COUNTRY=GB\n")
    read = "from shardpost.settings import load; print(load().country)"
    assert python(installed, "-c", read) == "GB\n"


def test_what_a_wheel_depends_on_is_locked_for_us_too() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    text = (CHECKOUT / "requirements.in").read_text()
    at_run_time = text.partition("# run time\n")[2].partition("\n\n")[0].splitlines()
    ours = {re.split("[<>=]", line)[0] for line in at_run_time}
    assert {re.split("[<>=]", one)[0] for one in project["dependencies"]} == ours
