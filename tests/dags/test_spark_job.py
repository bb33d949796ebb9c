"""How a task submits its job: on the master of the connection, with nothing secret in arguments."""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowTaskTimeout

from shardpost.errors import UsageError
from shardpost.orchestration import spark_job as job_module
from shardpost.orchestration.spark_job import SparkJob
from shardpost.settings import load, loading
from shardpost.spark.job import JobSpec
from shardpost.spark.submit import conf_on
from tests.support.installed import installed

VARIABLE = "AIRFLOW_CONN_SPARK_DEFAULT"


def spark(host: str, **extra: str) -> str:
    return json.dumps({"conn_type": "spark", "host": host, "extra": extra})


@pytest.fixture(autouse=True)
def _known_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hook take Kubernetes, whose client's package is not installed."""
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)


def submitted(folder: Path, **given: Any) -> tuple[list[str], dict[str, str]]:
    """Return arguments and own variables with which a job would be submitted now."""
    task = SparkJob(task_id="a", job=JobSpec("stand_in"), **given)
    settings = load()
    master = task._master(installed(settings))
    conf = conf_on(installed(settings), master, {"spark.ui.enabled": "false"})
    task._configure(installed(settings), master, folder, conf)
    hook = task._get_hook()
    return hook._build_spark_submit_command(str(task.application)), hook._env


# What of the provider is used and has no public way, as long as this test passes.
PRIVATE = {"_conn_id", "_get_hook", "_hook", "_connection", "_env", "_log", "_submit_sp"}


def test_only_what_has_no_public_way_in_the_provider_is_private() -> None:
    tree = ast.parse(Path(job_module.__file__).read_text())
    [cls] = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    used = {one.attr for one in ast.walk(cls) if isinstance(one, ast.Attribute)}
    used |= {one.name for one in cls.body if isinstance(one, ast.FunctionDef)}
    task = SparkJob(task_id="a", job=JobSpec("stand_in"))
    hook = SparkSubmitOperator._get_hook(task)
    of_provider = {*dir(SparkSubmitOperator), *vars(hook), "_hook"}
    assert {name for name in used & of_provider if re.match("_[a-z]", name)} == PRIVATE
    # `log` is to be read only, and `get_hook` of a hook makes one of any connection.
    public = {*dir(SparkSubmitOperator), *dir(hook)} - {"log", "get_hook"}
    assert not public & {name[1:] for name in PRIVATE}
    assert not hasattr(SparkSubmitOperator, "get_hook")
    log: Any = type(hook).log
    assert log.fset is None, "the provider's log can be set"


def test_what_the_ui_renders_of_a_job_has_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDPOST_ALERTS", "slack://hush")
    loading._of_this_process.cache_clear()
    task = SparkJob(task_id="a", job=JobSpec("stand_in"))
    task._configure(installed(load()), task._master(installed(load())), tmp_path, {})
    rendered = {name: getattr(task, name) for name in SparkJob.template_fields}
    assert rendered["application_args"][0] == rendered["request"] == task.request
    assert {*SparkSubmitOperator.template_fields} < rendered.keys()
    assert "hush" not in str(rendered)
    assert task._get_hook()._env["SHARDPOST_ALERTS"] == "slack://hush"


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        (spark("spark://localhost:7077"), "spark://localhost:7077"),
        ("spark://localhost:7077", "spark://localhost:7077"),
        (spark("yarn", **{"deploy-mode": "client"}), "yarn"),
        (spark("k8s://https://10.0.0.5:6443"), "k8s://https://10.0.0.5:6443"),
    ],
)
def test_on_a_remote_master_it_goes_out_with_its_package_and_without_loopback(
    connection: str, master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, connection)
    monkeypatch.setenv("SHARDPOST_IMPORT_JDBC_USER", "ann")
    monkeypatch.setenv("SHARDPOST_IMPORT_JDBC_PASSWORD", "hush")
    loading._of_this_process.cache_clear()
    arguments, variables = submitted(tmp_path)
    assert ("--master", master) in pairwise(arguments)
    assert ("--py-files", str(tmp_path / "shardpost.zip")) in pairwise(arguments)
    assert not [part for part in arguments if "127.0.0.1" in part or "Env." in part]
    assert "SPARK_LOCAL_IP" not in variables
    assert variables["SHARDPOST_IMPORT_JDBC_PASSWORD"] == "hush"  # noqa: S105
    assert "hush" not in " ".join(arguments)


def test_on_a_local_master_it_stays_on_loopback(tmp_path: Path) -> None:
    arguments, variables = submitted(tmp_path)
    assert "spark.driver.host=127.0.0.1" in arguments
    assert variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "--py-files" not in arguments


def test_what_a_task_or_a_file_of_properties_sets_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.driver.port 7078\n")
    monkeypatch.setenv("SHARDPOST_SPARK_CONF", str(file))
    monkeypatch.setenv(VARIABLE, spark("spark://host:7077"))
    loading._of_this_process.cache_clear()
    arguments, _ = submitted(tmp_path, conf={"spark.ui.enabled": "true"})
    assert ("--properties-file", str(file)) in pairwise(arguments)
    assert [part for part in arguments if "spark.ui" in part] == ["spark.ui.enabled=true"]


def test_a_driver_that_would_not_run_beside_its_task_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, spark("spark://host:7077", **{"deploy-mode": "cluster"}))
    with pytest.raises(UsageError, match="spark_default: expected the deploy-mode client, found"):
        submitted(tmp_path)


def test_without_the_package_for_kubernetes_it_says_which(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(spark_submit, "kube_client")
    monkeypatch.setenv(VARIABLE, spark("k8s://https://10.0.0.5:6443"))
    with pytest.raises(UsageError, match="needs the package apache-airflow-providers-cncf-kuber"):
        submitted(tmp_path)


def test_without_its_connection_no_master_is_guessed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(AirflowNotFoundException, match="another"):
        submitted(tmp_path, conn_id="another")


STAYS = JobSpec("stand_in", stays=lambda _: True)


@contextmanager
def staying(task: SparkJob, folder: Path) -> Iterator[psutil.Process]:
    """Have a task run a job that has a child, and does not end when it is asked to."""
    command = ["bash", "-c", "sleep 600 & echo started; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        [child] = psutil.Process(process.pid).children()
        task._configure(installed(load()), task._master(installed(load())), folder, {})
        task._hook = task._get_hook()
        task._hook._submit_sp = process
        try:
            yield child
        finally:
            process.kill()
            if child.is_running():
                child.kill()


@pytest.mark.parametrize("is_folder_there", [True, False])
def test_a_job_that_stays_is_killed_even_if_its_folder_is_gone(
    is_folder_there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job_module, "STOPPED_WITHIN", 0.1)
    task, folder = SparkJob(task_id="a", job=STAYS), tmp_path / "job"
    folder.mkdir()
    with staying(task, folder) as child:
        if not is_folder_there:
            folder.rmdir()
        task.on_kill()
        assert (folder / "stop").exists() == is_folder_there
        psutil.wait_procs([child], timeout=10)
        assert not child.is_running()


def test_a_job_is_killed_before_its_folder_goes_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job_module, "STOPPED_WITHIN", 0.1)
    task = SparkJob(task_id="a", job=STAYS)
    folders: list[bool] = []

    def on_kill() -> None:
        folders.append(task._folder.is_dir())

    def execute(*_: Any) -> None:
        raise AirflowTaskTimeout("too long")

    monkeypatch.setattr(task, "on_kill", on_kill)
    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    with pytest.raises(AirflowTaskTimeout):
        task._submit(installed(load()), Context())
    assert folders == [True]
