"""Airflow's own code on a database of its own, made once; no process of Airflow runs."""

import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardpost.checkout import CHECKOUT
from shardpost.installation import Installation
from shardpost.settings import loading
from shardpost.spark.job import JobResult, JobSpec
from tests.support.airflow_environment import ENVIRON, HOME

StandIn = Callable[[dict[str, list[object]]], Path]  # {text of a request: [exit code, result]}
FOLDER = Path(__file__).parent
SETTINGS = ("SHARDPOST_", "AIRFLOW_")  # of which variables begin so
STAND_IN = FOLDER.parent / "support" / "stand_in.py"


@pytest.fixture(scope="session", autouse=True)
def database() -> None:
    """Make Airflow's tables."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session", autouse=True)
def written_once(database: None) -> Iterator[None]:
    """Have runs of `dag.test` parse and write the DAGs of a folder when settings differ.

    Airflow does so in each, which takes longer than the run.
    """
    from airflow.dag_processing import dagbag

    parse, write = dagbag.BundleDagBag, dagbag.sync_bag_to_db
    settings_at: dict[str, dict[str, str]] = {}

    def parse_changed(**where: Any) -> Any:
        own = {name: text for name, text in os.environ.items() if name.startswith(SETTINGS)}
        is_known = settings_at.get(where["bundle_name"]) == own
        settings_at[where["bundle_name"]] = own
        return None if is_known else parse(**where)

    def write_changed(parsed: Any, *where: Any) -> None:
        if parsed is not None:
            write(parsed, *where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dagbag, "BundleDagBag", parse_changed)
        patch.setattr(dagbag, "sync_bag_to_db", write_changed)
        yield


@pytest.fixture(scope="session")
def bag(database: None) -> Any:
    """Give all DAGs of ours, parsed once."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=CHECKOUT / "dags")


@pytest.fixture
def synced(bag: Any) -> None:
    """Have all DAGs of ours in the database, as after a parse."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    sync_bag_to_db(bag, "dags-folder", None)


@pytest.fixture
def dag(bag: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Give the DAG that the file of a test is named for; its trial runs keep their params apart."""
    tested = bag.dags[request.path.stem.removeprefix("test_")]
    declared = [(one, one.params) for one in (tested, *tested.tasks)]
    for one, params in declared:
        one.params = copy.deepcopy(params)
    yield tested
    for one, params in declared:
        one.params = params


def read_back(dag: Any) -> Any:
    """Return a DAG as the scheduler has it: written to the database and read back."""
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


@pytest.fixture(autouse=True)
def task_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test the environment that a task has; returns the home."""
    for name, text in ENVIRON.items():
        monkeypatch.setenv(name, text)
    loading._of_this_process.cache_clear()
    yield HOME
    loading._of_this_process.cache_clear()


@pytest.fixture
def alerts(task_environment: Path) -> Path:
    """Give the file of alerts, without those of other tests."""
    path = task_environment / "alerts.log"
    path.unlink(missing_ok=True)
    return path


@pytest.fixture
def without_jvm(task_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a spark-submit first on the path that runs the job's file at once, without a JVM."""
    del task_environment
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    up_to_the_job = f'until [ "$1" = "{STAND_IN}" ]; do shift; done'
    submit.write_text(f'#!/bin/sh\n{up_to_the_job}\nexec "{sys.executable}" "$@"\n')
    submit.chmod(0o755)
    monkeypatch.setattr("shardpost.spark.submit.BIN", submit.parent)


@pytest.fixture
def submitted_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put stand_in.py in the place of every job; what is returned sets what it answers.

    It returns the file that notes its calls. No job of ours is done without Spark.
    """
    from shardpost.spark import submit

    def answer(answers: dict[str, list[object]]) -> Path:
        calls, plan = tmp_path / "calls", tmp_path / "plan.json"
        plan.write_text(json.dumps({"calls": str(calls), "answers": answers}))
        monkeypatch.setenv("STAND_IN", str(plan))
        return calls

    monkeypatch.setattr(submit, "job_file", lambda job: STAND_IN)
    own = JobSpec.result_without_spark

    def without_spark(job: JobSpec, installation: Installation, request: str) -> JobResult | None:
        return own(job, installation, request) if job.name == "stand_in" else None

    monkeypatch.setattr(JobSpec, "result_without_spark", without_spark)
    return answer


@pytest.fixture
def stand_in(submitted_stand_in: StandIn, without_jvm: None) -> StandIn:
    """Put stand_in.py in the place of every job, and start no JVM for it."""
    return submitted_stand_in


def states(run: Any) -> dict[str, str]:
    """Return in which state each task of a run is."""
    return {one.task_id: one.state for one in run.get_task_instances()}
