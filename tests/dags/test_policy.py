"""What holds for every DAG of ours, of today and of later, and for the page of all."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.serialization.serialized_objects import DagSerialization

from shardpost.checkout import CHECKOUT
from shardpost.commands.email import email_command
from shardpost.commands.positions import compact_command, import_command
from shardpost.commands.rebuild import start_command
from shardpost.commands.tables import maintain_command
from shardpost.orchestration.tasks import alert, end_alert, in_form, say_that_it_is_tried_again
from shardpost.run_requests.model.requests import DAG_PARAMS

DAGS = CHECKOUT / "dags"
HEAVY = {"pyspark", "delta", "deltalake", "confluent_kafka", "pandas", "pyarrow"}
FILES = sorted(DAGS.glob("*.py"))


@pytest.fixture(params=[file.stem for file in FILES])
def dag(bag: DagBag, request: pytest.FixtureRequest) -> DAG:
    return bag.dags[request.param]


def test_no_file_fails_to_import_and_each_holds_the_dag_of_its_name(bag: DagBag) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {file.stem for file in FILES}


def test_a_dag_says_what_it_is_and_runs_once_at_a_time(dag: DAG) -> None:
    assert dag.description
    assert len((dag.doc_md or "").splitlines()) > 3
    assert dag.tags
    assert (dag.catchup, dag.max_active_runs) == (False, 1)


def test_only_weeks_are_backfilled(dag: DAG) -> None:
    allowed: Any = dag.allowed_run_types
    assert (allowed is None) == (dag.dag_id == "weekly_email")
    assert allowed is None or {*DagRunType} - {*allowed} == {DagRunType.BACKFILL}


def test_every_asset_has_a_uri_that_its_provider_accepts(dag: DAG) -> None:
    condition: Any = getattr(dag.timetable, "asset_condition", None)
    scheduled = condition.objects if condition else ()
    of_tasks = [one for task in dag.tasks for one in (*task.inlets, *task.outlets)]
    for asset in (*scheduled, *of_tasks):
        assert urlsplit(asset.uri).scheme in {"kafka", "file", "s3"}, asset.name
        assert asset.uri == Asset(asset.name, asset.uri).normalized_uri


def test_requests_know_each_dag_and_its_params(bag: DagBag) -> None:
    found = {name: {*params.split()} for name, params in DAG_PARAMS.items()}
    assert found == {name: {*one.params} for name, one in bag.dags.items()}


COMMANDS = {
    "compact_positions": compact_command,
    "import_positions": import_command,
    "maintain_tables": maintain_command,
    "rebuild_tables": start_command,
    "weekly_email": email_command,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_its_command_is_named_as_the_param_of_a_dag(name: str) -> None:
    params = DAG_PARAMS[name].split()
    for option in COMMANDS[name].params:
        long = option.opts[-1]
        names = {str(option.name), long.strip("-").replace("-", "_")} & {*params}
        for param in names if long.startswith("--") else ():
            assert in_form(f"or add {long}.") == f"or add param {param}."


def test_every_param_has_a_title_and_a_description_and_a_default(dag: DAG) -> None:
    for name in dag.params:
        param = dag.params.get_param(name)
        assert param.schema["title"], name
        assert param.description, name
        assert not {*"*`"} & {*param.description}, name  # Airflow's form shows it as it is
        param.resolve()  # raises if the default is none that it takes itself


def test_a_task_has_an_owner_docs_and_a_timeout_is_tried_again_and_says_why_it_fails(
    dag: DAG,
) -> None:
    for task in dag.tasks:
        assert task.owner == "shardpost", task.task_id
        assert task.doc_md, task.task_id
        assert task.execution_timeout, task.task_id
        assert (task.retries or 0) >= 2 or task.task_id == "report", task.task_id
        assert task.retry_exponential_backoff > 1, task.task_id
        assert task.on_failure_callback == [alert], task.task_id
        assert task.on_success_callback == [end_alert], task.task_id
        assert task.on_skipped_callback == [end_alert], task.task_id
        assert task.on_retry_callback == [say_that_it_is_tried_again], task.task_id


def test_a_dag_that_did_not_change_is_no_new_version_of_itself(dag: DAG) -> None:
    """What a function is called by default holds its address, another one in each process."""
    assert " at 0x" not in json.dumps(DagSerialization.to_dict(dag))


def test_the_form_asks_for_nothing_and_offers_nothing_that_is_called_null(dag: DAG) -> None:
    for name in dag.params:
        schema = dag.params.get_param(name).schema
        assert "null" in schema["type"], name  # others have a red asterisk
        assert "pattern" not in schema, name  # its error is a regular expression
        shown = schema.get("values_display", {})
        assert set(shown) == {"null" if one is None else one for one in schema.get("enum", [])}


# Parses files one after the other, and prints each with what is imported by then.
PARSE = """
import runpy, sys
for file in sys.argv[1:]:
    runpy.run_path(file)
    print(file, *sys.modules)
"""


def test_parsing_imports_nothing_heavy_and_reads_no_settings() -> None:
    path = os.pathsep.join([str(CHECKOUT / "plugins"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *map(str, FILES)],
        env=os.environ | {"SHARDPOST_NONSENSE": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = {
        Path(file).stem: modules for file, *modules in map(str.split, done.stdout.splitlines())
    }
    assert {file: HEAVY & set(modules) for file, modules in imported.items()} == {
        file.stem: set() for file in FILES
    }


def test_the_page_of_all_dags_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(CHECKOUT / "docs" / "generate.py"))
    assert script["dags_page"]() == script["DAGS"].read_text(), "run docs/generate.py"


SCHEDULES = {
    "compact_positions": ("SHARDPOST_COMPACT_SCHEDULE", "0 6 * * *", "At 06:00"),
    "sweep_dead_letters": ("SHARDPOST_SWEEP_SCHEDULE", "0 7 * * *", "At 07:00"),
    "watch_kafka": ("SHARDPOST_WATCH_SCHEDULE", "0 8 * * *", "At 08:00"),
    "maintain_tables": ("SHARDPOST_MAINTAIN_SCHEDULE", "0 9 * * *", "At 09:00"),
    "weekly_email": ("SHARDPOST_WEEKLY_SEND", "Tue 07:30 Europe/Berlin", "Tuesdays 07:30 Europe/B"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_a_setting_and_a_wrong_one_is_named_where_its_dag_is_broken(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, given, described = SCHEDULES[name]
    file = DAGS / f"{name}.py"
    monkeypatch.setenv(variable, given)
    found = DagBag(dag_folder=file).dags[name]
    read_back = DagSerialization.from_dict(DagSerialization.to_dict(found))
    assert read_back.timetable.description.startswith(described)
    monkeypatch.setenv(variable, "sometimes")
    [(_, error)] = DagBag(dag_folder=file).import_errors.items()
    assert f"UsageError: setting {variable}='sometimes' (environment): expected " in error
