"""What DAGs share: the task that is a Spark job, the defaults of every task, the alert, the asset.

The only module of the package, beside the embedded stack, that knows Airflow.
"""

import json
import logging
import re
import sys
from collections.abc import Callable
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
from shardpost.spark.submit import LOOPBACK_CONF, job_conf, job_file, temporary_files_in

log = logging.getLogger(__name__)

# Spark's own lines about itself.
NOISE = re.compile(r" (INFO|WARN) |^WARNING: ")
# Updated by compact_positions, read by weekly_email.
HOLDERS = Asset("share_holders")

Arguments = list[str] | Callable[..., list[str]]


class SparkJob(SparkSubmitOperator):
    """A job of spark_jobs/, run through the connection `spark_default`; returns its JSON result.

    `arguments` may be a function of the run (`context`, `jinja_env`) that
    returns them; `part` names a mapped task. The job's exit code decides: 3 (done, but something
    needs a person) is success, so that it is not tried again: the result says what. 2 (bad usage)
    fails at once. Any other but 0 is tried again.
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
        """Submit the job, wait for it, and return what it left."""
        settings = load()
        result = _result_path(settings, context)
        with (
            job_folder() as folder,
            class_archive.read_or_create(self.job) as archive,
        ):
            self._describe(settings, result, job_conf(settings, self.job, *archive.jvm_options))
            self.env_vars = (self.env_vars or {}) | temporary_files_in(folder)
            try:
                super().execute(context)
            except AirflowException as error:
                self._judge(error)
            archive.keep()
        return _taken(result)

    def on_kill(self) -> None:
        """End spark-submit with all that it started: the JVM, the driver's Python, its workers."""
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

    def _describe(self, settings: Settings, result: Path, conf: dict[str, str]) -> None:
        """Fill in what the machine decides; nothing of it is read when DAGs are parsed."""
        local = (BaseHook.get_connection(self._conn_id).host or "").startswith("local")
        self.application = str(job_file(self.job))
        self.application_args = [*cast("list[str]", self.arguments), "--result", str(result)]
        self.conf = conf | (LOOPBACK_CONF if local else {}) | (self.conf or {})
        self.env_vars = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        if local:
            self.env_vars["SPARK_LOCAL_IP"] = "127.0.0.1"
        else:
            self.py_files = str(packages_zip(settings.home / "packages"))
        self._driver_memory = settings.driver_memory

    def _judge(self, error: AirflowException) -> None:
        """Return if the job's exit code means success.

        Else raise, with what the job itself said.
        """
        submitted = self._submitted()
        code = submitted.returncode if submitted else None
        if code == NEEDS_ATTENTION:
            log.warning("%s: done, and something needs a person's attention", self.job.name)
            return
        text = f"{self.job.name} ended with {code}: {_said(str(error))}"
        if code == BAD_USAGE:
            raise AirflowFailException(text) from None
        raise AirflowException(text) from None

    def _submitted(self) -> Any:
        return self._hook._submit_sp if self._hook else None


def alert(context: Context) -> None:
    """Log, and keep in `alerts.log`, which task of which run failed, for which shards, and why."""
    task = context["ti"]
    label = getattr(task, "rendered_map_index", None)
    where = f"{task.dag_id} {task.run_id} {task.task_id}{f' ({label})' if label else ''}"
    why = " ".join(str(context.get("exception") or "it was ended from outside").split())
    line = f"{where}, attempt {task.try_number}: {why}"
    log.error(line)
    path = load().home / "alerts.log"
    with path.open("a") as file:
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
    """Return a place of its own for this attempt of this task."""
    task = context["ti"]
    parts = (task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number)
    path = settings.home / "results" / (".".join(map(str, parts)) + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def _taken(result: Path) -> Any:
    """Return what the job left, and take it away: from here on it is Airflow's."""
    if not result.exists():
        raise AirflowException(f"the job ended well but left no result at {result}")
    value = json.loads(result.read_text())
    result.unlink()
    return value


def _said(text: str) -> str:
    """Return the job's own line of the output that the provider quotes, or else its end."""
    lines = [line for line in text.splitlines() if line.strip() and not NOISE.search(line)]
    own = [line.removeprefix("shardpost: ") for line in lines if line.startswith("shardpost: ")]
    return own[-1] if own else " | ".join(lines[1:][-5:] or lines)
