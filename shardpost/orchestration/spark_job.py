"""The operator for Spark jobs: the request, the exit code, the result, and the log of one."""

import logging
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, UsageError
from shardpost.installation import Installation
from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.lineage import as_openlineage, note_result
from shardpost.orchestration.tasks import JobLog, failure, task_errors
from shardpost.spark import submit
from shardpost.spark.jars import class_archive, packages_zip
from shardpost.spark.job import BY_DEFAULT, JobSpec, ask_to_stop, document_of, job_folder

log = logging.getLogger(__name__)

# Airflow kills a task that it ends after 5 s: its job has to be gone before that.
STOPPED_WITHIN = 3.0
# From this exit code on, spark-submit was killed by the signal of the number above it.
_SIGNALLED = 128

ATTENTION = "%s: done, needs attention: see its result"


class SparkJob(SparkSubmitOperator):
    """Runs a job of spark_jobs/ through Airflow's connection for Spark; returns its JSON result.

    `request` is a document, or a function of the run, which is called when the task runs: what it
    refuses with a ShardpostError fails the task before anything is started, and the job runs as of
    its own time. `part` names a mapped task; `mails` says that the job sends mails.
    Exit code 3 (needs attention) is success with a result, which says why; without one it was not
    done, and fails without a retry, as exit code 2 (bad usage) does: a person has to act first. Any
    other but 0 is retried.
    """

    # What the UI shows under "Rendered Templates", once the task has run: so `env_vars` stay unset.
    template_fields = (*SparkSubmitOperator.template_fields, "request")
    overwrite_rtif_after_execution = True

    def __init__(
        self,
        *,
        job: JobSpec,
        request: str | Callable[[Context], object] = BY_DEFAULT,
        part: str = "",
        mails: bool = False,
        conn_id: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(name=f"shardpost {job.name}", conn_id=conn_id or "", **rest)
        self.job = job
        self.request = BY_DEFAULT if callable(request) else request
        # Not a template field: Airflow shows what is raised there inside of a closed group.
        self.request_of = request if callable(request) else None
        self.part = part
        self.mails = mails
        self._outlets: list[Any] = []
        self.lineage: Any = None  # and the settings, once the job is done
        self._job_log = JobLog()

    def prepare_for_execution(self) -> Any:
        """Hold back assets: Airflow fails a task where others declare one with another URI."""
        own: Any = super().prepare_for_execution()
        own._outlets, own.inlets, own.outlets = own.outlets, [], []
        return own

    @task_errors()
    def execute(self, context: Context) -> Any:
        """Do the job, by Spark unless it needs none, and return its result."""
        if self.request_of is not None:
            self.request = document_of(self.request_of(context), with_now=False)
        log.info("job %s %s", self.job.name, self.request)
        installation = task_installation(mails=self.mails)
        result = self._done(installation, context)
        if lineage := note_result(context, self._outlets, self.job.name, result):
            self.lineage = lineage, installation.settings
        return result

    def _done(self, installation: Installation, context: Context) -> Any:
        if done := self.job.result_without_spark(installation, self.request):
            code, result = done
            if code == NEEDS_ATTENTION:
                log.warning(ATTENTION, self.job.name)
            elif code != DONE:
                raise failure(f"{self.job.name} ended with {code}", code)
            return result
        return self._submit(installation, context)

    def _submit(self, installation: Installation, context: Context) -> Any:
        submit.require_master(
            master := self._master(installation), f"the connection {self._conn_id}"
        )
        with job_folder() as folder, class_archive(self.job) as archive:
            result = folder / submit.RESULT
            own = submit.job_conf(
                installation, self.job, *archive.jvm_options, document=self.request
            )
            conf = submit.conf_on(installation, master, own)
            self._configure(installation, master, folder, conf)
            try:
                super().execute(context)
            except AirflowException as error:
                self._require_success(error, result)
            except BaseException:  # its time limit is reached
                self.on_kill()  # Airflow asks for it when the folder is gone
                raise
            finally:
                self._job_log.close()
            archive.keep()
            if (found := submit.read_result(folder)) is None:
                raise AirflowException(f"the job succeeded but wrote no result to {result}")
            return found  # which Airflow stores as XCom

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the datasets that the job read and wrote: the provider of OpenLineage asks."""
        return as_openlineage(*self.lineage) if self.lineage else None

    def on_kill(self) -> None:
        """Kill spark-submit with its descendants: the JVM, the driver's Python, its workers.

        One that stays is asked to stop first, and has STOPPED_WITHIN seconds.
        """
        submitted = self._submitted()
        if submitted is None or submitted.poll() is not None:
            return
        if self.job.stays(self.request):
            with suppress(OSError, subprocess.TimeoutExpired):
                ask_to_stop(self._folder)
                submitted.wait(STOPPED_WITHIN)
                return
        tree: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(submitted.pid).children(recursive=True)
        super().on_kill()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _configure(
        self, installation: Installation, master: str, folder: Path, conf: dict[str, str]
    ) -> None:
        """Set what depends on this machine; none of it is read when DAGs are parsed."""
        self._folder = folder
        self.application = str(submit.job_file(self.job))
        self.application_args = [self.request, "--result", str(folder / submit.RESULT)]
        self.conf = conf | (self.conf or {})
        self._environment = submit.job_environment(
            installation, master
        ) | submit.temporary_files_in(folder)
        if installation.settings.spark_conf is not None:
            self.properties_file = str(installation.settings.spark_conf)
        if not submit.is_local(master):
            self.py_files = str(packages_zip(folder))
        self._hook = None  # of an earlier attempt

    def _master(self, installation: Installation) -> str:
        """Return the connection's master; UsageError for a driver that would not run here."""
        self._conn_id = self._conn_id or installation.settings.connection_ids["spark"]
        BaseHook.get_connection(self._conn_id)  # the hook would take YARN where there is none
        try:
            connection = SparkSubmitHook(conn_id=self._conn_id)._connection
        except NameError:  # so the hook fails where it has no client of Kubernetes
            raise UsageError(
                f"connection {self._conn_id}: a master on Kubernetes needs the package"
                " apache-airflow-providers-cncf-kubernetes: install it"
            ) from None
        if connection["deploy_mode"] not in (None, "client"):
            raise UsageError(
                f"connection {self._conn_id}: expected the deploy-mode client, found"
                f" {connection['deploy_mode']!r}: the driver, which has a job's result and exit"
                " code, must run beside the task"
            )
        return str(connection["master"])

    def _require_success(self, error: AirflowException, result: Path) -> None:
        """Return if the job's exit code means success, else raise with the job's own message."""
        submitted = self._submitted()
        code = submitted.returncode if submitted else None
        if code == NEEDS_ATTENTION and result.exists():
            log.warning(ATTENTION, self.job.name)
            return
        why = self._job_log.said
        if code is not None and not 0 <= code <= _SIGNALLED:
            number = -code if code < 0 else code - _SIGNALLED
            why = f"killed by signal {number}, as the kernel does if memory runs out. {why}".strip()
        text = f"{self.job.name} ended with {code}: {why or error}"
        raise failure(text, code or COULD_NOT) from None

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        hook._log = cast("Any", self._job_log)  # takes what spark-submit writes
        # Of `env_vars` it would make arguments on YARN and Kubernetes, which all can read.
        hook._env = self._environment
        return hook

    def _submitted(self) -> Any:
        return self._hook._submit_sp if self._hook else None
