"""What DAGs share: the operator for Spark jobs, the defaults of every task, the alert, the asset.

The only module of the package that imports Airflow.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psutil
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from shardpost.errors import BAD_USAGE, NEEDS_ATTENTION
from shardpost.settings import Settings, load
from shardpost.spark import class_archive
from shardpost.spark.job_folder import job_folder
from shardpost.spark.job_spec import JobSpec
from shardpost.spark.packages import packages_zip
from shardpost.spark.submit import (
    LOOPBACK_CONF,
    LOOPBACK_IP,
    is_local,
    job_conf,
    job_file,
    temporary_files_in,
)

log = logging.getLogger(__name__)

# Log lines of Spark itself.
SPARK_LOG = re.compile(r" (INFO|WARN) |^WARNING: ")
MOST_NAMED = 20  # lines of what needs attention in one alert
# Updated by compact_positions, read by weekly_email.
HOLDERS = Asset("share_holders")

Arguments = list[str] | Callable[..., list[str]]


class SparkJob(SparkSubmitOperator):
    """Runs a job of spark_jobs/ through the connection `spark_default`; returns its JSON result.

    `arguments` may be a function of the run (`context`, `jinja_env`) that returns them; `part`
    names a mapped task. Exit code 3 (needs attention) is success with a result, which says why;
    without one it was not done, and fails without a retry, as exit code 2 (bad usage) does: a
    person has to act first. Any other but 0 is retried.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "arguments")

    def __init__(
        self, *, job: JobSpec, arguments: Arguments | None = None, part: str = "", **rest: Any
    ) -> None:
        super().__init__(name=f"shardpost {job.name}", **rest)
        self.job = job
        self.arguments = arguments or []
        self.part = part

    def execute(self, context: Context) -> Any:
        """Submit the job, wait for it, and return its result."""
        settings = load()
        result = _result_path(settings, context)
        with (
            job_folder() as folder,
            class_archive.read_or_create(self.job) as archive,
        ):
            self._configure(settings, result, job_conf(settings, self.job, *archive.jvm_options))
            self.env_vars = (self.env_vars or {}) | temporary_files_in(folder)
            try:
                super().execute(context)
            except AirflowException as error:
                self._require_success(error, result)
            archive.keep()
        return _read_result(result)

    def on_kill(self) -> None:
        """Kill spark-submit with its descendants: the JVM, the driver's Python, its workers."""
        submitted = self._submitted()
        if submitted is None:
            return
        tree: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(submitted.pid).children(recursive=True)
        super().on_kill()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _configure(self, settings: Settings, result: Path, conf: dict[str, str]) -> None:
        """Set what depends on this machine; none of it is read when DAGs are parsed."""
        local = is_local(BaseHook.get_connection(self._conn_id).host or "")
        self.application = str(job_file(self.job))
        self.application_args = [*cast("list[str]", self.arguments), "--result", str(result)]
        self.conf = conf | (LOOPBACK_CONF if local else {}) | (self.conf or {})
        self.env_vars = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        if local:
            self.env_vars["SPARK_LOCAL_IP"] = LOOPBACK_IP
        else:
            self.py_files = str(packages_zip(settings.home / "packages"))
        self._driver_memory = settings.driver_memory

    def _require_success(self, error: AirflowException, result: Path) -> None:
        """Return if the job's exit code means success, else raise with the job's own message."""
        submitted = self._submitted()
        code = submitted.returncode if submitted else None
        if code == NEEDS_ATTENTION and result.exists():
            log.warning("%s: done, needs attention: see its result", self.job.name)
            return
        text = f"{self.job.name} ended with {code}: {_message(str(error))}"
        if code in (BAD_USAGE, NEEDS_ATTENTION):
            raise AirflowFailException(text) from None
        raise AirflowException(text) from None

    def _submitted(self) -> Any:
        return self._hook._submit_sp if self._hook else None


def alert(context: Context) -> None:
    """Log, and append to `alerts.log`, which task failed in which run, its shards, and why."""
    task = context["ti"]
    label = getattr(task, "rendered_map_index", None)
    where = f"{task.dag_id} {task.run_id} {task.task_id}{f' ({label})' if label else ''}"
    why = " ".join(str(context.get("exception") or "it was killed or marked failed").split())
    line = f"{where}, attempt {task.try_number}: {why}"
    log.error(line)
    _append_alert(line)


def alert_of_attention(context: Context, lines: Sequence[str]) -> None:
    """Log, and append to `alerts.log` as one line, what a run that is done leaves to a person."""
    task = context["ti"]
    for line in lines:
        log.warning(line)
    named = [*lines[:MOST_NAMED], *(["…"] if len(lines) > MOST_NAMED else [])]
    _append_alert(f"{task.dag_id} {task.run_id} needs attention: {'; '.join(named)}")


def _append_alert(line: str) -> None:
    with (load().home / "alerts.log").open("a") as file:
        file.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")


# default_args of every DAG.
DEFAULTS: dict[str, Any] = {
    "owner": "shardpost",
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=1),
    "on_failure_callback": alert,
}


def _result_path(settings: Settings, context: Context) -> Path:
    """Return the path of the result of this attempt of this task."""
    task = context["ti"]
    parts = (task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number)
    path = settings.home / "results" / (".".join(map(str, parts)) + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def _read_result(result: Path) -> Any:
    """Return the result and delete its file: Airflow stores it as XCom."""
    if not result.exists():
        raise AirflowException(f"the job succeeded but wrote no result to {result}")
    value = json.loads(result.read_text())
    result.unlink()
    return value


def _message(text: str) -> str:
    """Return the job's own message in the output that the provider quotes, else its last lines."""
    lines = [line for line in text.splitlines() if line.strip() and not SPARK_LOG.search(line)]
    own = [line.removeprefix("shardpost: ") for line in lines if line.startswith("shardpost: ")]
    return own[-1] if own else " | ".join(lines[1:][-5:] or lines)
