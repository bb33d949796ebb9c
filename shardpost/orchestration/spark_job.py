"""The operator for Spark jobs: the request, the exit code, the result, and the log of one."""

import json
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.orchestration.connections import task_settings
from shardpost.orchestration.task_log import JobLog
from shardpost.orchestration.tasks import failure, task_errors
from shardpost.settings import Settings
from shardpost.spark import class_archive
from shardpost.spark.jars import packages_zip
from shardpost.spark.job_process import job_folder
from shardpost.spark.job_spec import BY_DEFAULT, JobResult, JobSpec, document_of
from shardpost.spark.submit import (
    LOOPBACK_CONF,
    LOOPBACK_IP,
    is_local,
    job_conf,
    job_file,
    temporary_files_in,
)

log = logging.getLogger(__name__)

ATTENTION = "%s: done, needs attention: see its result"

# A document (job_spec.document_of), or what makes a request for a run.
Request = str | Callable[[Context], object]


class SparkJob(SparkSubmitOperator):
    """Runs a job of spark_jobs/ through the connection `spark_default`; returns its JSON result.

    `request` may be a function of the run, which is called when the task runs: what it refuses with
    a ShardpostError fails the task before anything is started, and the job runs as of its own time.
    `part` names a mapped task; `mails` says that the job sends mails.
    Exit code 3 (needs attention) is success with a result, which says why; without one it was not
    done, and fails without a retry, as exit code 2 (bad usage) does: a person has to act first. Any
    other but 0 is retried.
    """

    # Shown by the UI under "Rendered Templates", once the task has run.
    template_fields = ("request",)
    overwrite_rtif_after_execution = True

    def __init__(
        self,
        *,
        job: JobSpec,
        request: Request = BY_DEFAULT,
        part: str = "",
        mails: bool = False,
        **rest: Any,
    ) -> None:
        super().__init__(name=f"shardpost {job.name}", **rest)
        self.job = job
        self.request = BY_DEFAULT if callable(request) else request
        # Not a template field: Airflow shows what is raised there inside of a closed group.
        self.request_of = request if callable(request) else None
        self.part = part
        self.mails = mails
        self._job_log = JobLog()

    @task_errors()
    def execute(self, context: Context) -> Any:
        """Do the job, by Spark unless it needs none, and return its result."""
        if self.request_of is not None:
            self.request = document_of(self.request_of(context), with_now=False)
        log.info("job %s %s", self.job.name, self.request)
        settings = task_settings(mails=self.mails)
        if done := self._without_spark(settings):
            return self._result_of(*done)
        return self._submit(settings, context)

    def _without_spark(self, settings: Settings) -> JobResult | None:
        return self.job.result_without_spark(settings, self.request)

    def _submit(self, settings: Settings, context: Context) -> Any:
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
            finally:
                self._job_log.close()
            archive.keep()
        return _read_result(result)

    def _result_of(self, code: int, result: Any) -> Any:
        """Return the result of a job that was done without Spark, if its exit code allows that."""
        if code == NEEDS_ATTENTION:
            log.warning(ATTENTION, self.job.name)
        elif code != DONE:
            raise failure(f"{self.job.name} ended with {code}", code)
        return result

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
        self.application_args = [self.request, "--result", str(result)]
        self.conf = conf | (LOOPBACK_CONF if local else {}) | (self.conf or {})
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self.env_vars = settings.environ() | python
        if local:
            self.env_vars["SPARK_LOCAL_IP"] = LOOPBACK_IP
        else:
            self.py_files = str(packages_zip(settings.folder("packages")))
        self._driver_memory = settings.driver_memory

    def _require_success(self, error: AirflowException, result: Path) -> None:
        """Return if the job's exit code means success, else raise with the job's own message."""
        submitted = self._submitted()
        code = submitted.returncode if submitted else None
        if code == NEEDS_ATTENTION and result.exists():
            log.warning(ATTENTION, self.job.name)
            return
        text = f"{self.job.name} ended with {code}: {self._job_log.said or error}"
        raise failure(text, code or COULD_NOT) from None

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        hook._log = cast("Any", self._job_log)  # takes what spark-submit writes
        return hook

    def _submitted(self) -> Any:
        return self._hook._submit_sp if self._hook else None


def _result_path(settings: Settings, context: Context) -> Path:
    """Return the path of the result of this attempt of this task."""
    task = context["ti"]
    parts = (task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number)
    path = settings.folder("results") / (".".join(map(str, parts)) + ".json")
    path.unlink(missing_ok=True)
    return path


def _read_result(result: Path) -> Any:
    """Return the result and delete its file: Airflow stores it as XCom."""
    if not result.exists():
        raise AirflowException(f"the job succeeded but wrote no result to {result}")
    value = json.loads(result.read_text())
    result.unlink()
    return value
