"""Submit a file of spark_jobs/ through spark-submit, the same way from a command as from a DAG."""

import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardpost.checkout import SPARK_JOBS
from shardpost.errors import BAD_USAGE, COULD_NOT, DONE, NEEDS_ATTENTION, ShardpostError, UsageError
from shardpost.installation import Installation
from shardpost.spark.jars import class_archive, jars_of, packages_zip, spark_home, store_conf
from shardpost.spark.job import (
    BY_DEFAULT,
    STAYS,
    JobSpec,
    document_of,
    job_folder,
    properties,
    run_job,
)

log = logging.getLogger(__name__)

BIN = Path(sys.executable).parent
EXIT_CODES = (DONE, COULD_NOT, BAD_USAGE, NEEDS_ATTENTION)

# The JVM's just-in-time compiler. A short run is over before the optimising tier (C2) has paid for
# itself; a long run takes twice as long without it.
SHORT_RUN_JIT = ("-XX:TieredStopAtLevel=1",)
# Even in a long run C2 would spend most of its time on code that seldom runs: compile later, and
# inline less.
LONG_RUN_JIT = (
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=4000",
    "-XX:Tier4CompileThreshold=40000",
    "-XX:FreqInlineSize=100",
    "-XX:InlineSmallCode=1000",
    "-XX:MaxInlineLevel=6",
    "-XX:LoopUnrollLimit=20",
)
# Of as much as a corrupt value claims to have, Avro takes memory before it reads it.
_LIMITED = ("string", "bytes", "collectionItems")
AVRO_LIMITS = [f"-Dorg.apache.avro.limits.{one}.maxLength=16777216" for one in _LIMITED]
DRIVER_JVM_OPTIONS = (
    f"-Dlog4j2.configurationFile=file:{SPARK_JOBS}/log4j2.properties",
    *AVRO_LIMITS,
    "-XX:+UseParallelGC",
    # No collections on the way to a heap size that every run reaches.
    "-Xms512m",
    "-XX:MetaspaceSize=256m",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)
# The file of a job's result, in the folder of its temporary files.
RESULT = "result.json"
# For masters on this machine: the driver is reached by nobody else.
LOOPBACK_IP = "127.0.0.1"
LOCAL_CONF = {
    "spark.driver.host": LOOPBACK_IP,
    "spark.driver.bindAddress": LOOPBACK_IP,
    "spark.pyspark.python": sys.executable,
}


def submit(installation: Installation, job: JobSpec, request: object = None) -> tuple[int, Any]:
    """Run the job to its end; return its exit code and its JSON document, None if it left none.

    Without a document the exit code is not 0. `request` is the dataclass that the job takes, None
    for its defaults. In this process, without Spark, where the job needs none. A submitted job's
    output goes to standard error; standard output stays free for the command's own. It ends with
    this process, however this one ends. ShardpostError if it was interrupted, and, with nothing
    started, if nobody listens where Kafka or Spark's master should be.
    """
    installation.kafka.require_listening()
    installation.tables.answering()
    document = BY_DEFAULT if request is None else document_of(request)
    if done := job.result_without_spark(installation, document):
        return done
    require_master(installation.settings.spark_master)
    log.info("%s: starting Spark, which takes a few seconds", job.name)
    with job_folder() as folder, class_archive(job) as archive:
        result = folder / RESULT
        conf = job_conf(installation, job, *archive.jvm_options, document=document)
        code = run_job(
            [
                *submit_command(installation, conf, folder),
                *(str(job_file(job)), document, "--result", str(result)),
            ],
            env=job_environment(installation) | temporary_files_in(folder),
            cwd=folder,  # Spark leaves empty folders in its working directory
            stays=job.stays(document),
        )
        if code in (DONE, NEEDS_ATTENTION):
            archive.keep()
        if code not in EXIT_CODES:
            raise ShardpostError(f"{job.name} was interrupted (exit code {code}): run it again")
        found = read_result(folder)
        return (code or COULD_NOT if found is None else code), found


def read_result(folder: Path) -> Any:
    """Return the document that a job left in its folder; None if it left none."""
    file = folder / RESULT
    return json.loads(file.read_text()) if file.exists() else None


def is_local(master: str) -> bool:
    """Tell whether a Spark master has its workers on this machine only: `local[*]` and the like."""
    return master.startswith("local")


def require_master(master: str, named_by: str = "SHARDPOST_SPARK_MASTER") -> None:
    """Raise ShardpostError if nothing listens at a standalone master's address."""
    from shardpost.kafka.clients import LISTEN_SECONDS, why_nobody_listens  # not for `--help`

    is_standalone = master.startswith("spark://")
    if is_standalone and (reason := why_nobody_listens(master, LISTEN_SECONDS)):
        raise ShardpostError(
            f"Spark's master {master} cannot be reached: {reason}: start it, or correct {named_by}"
        )


def job_file(job: JobSpec) -> Path:
    """Return the path of a job's file."""
    return SPARK_JOBS / f"{job.name}.py"


def job_conf(
    installation: Installation, job: JobSpec, *jvm_options: str, document: str = BY_DEFAULT
) -> dict[str, str]:
    """Return `submit_conf` with the compiler options for the amount that the job will read."""
    stays = job.stays(document)
    jit = LONG_RUN_JIT if stays or job.is_long(installation) else SHORT_RUN_JIT
    more = [*job.more_jars(installation), *["s3"] * installation.tables.is_on_store]
    limits = {"spark.executor.extraJavaOptions": " ".join(AVRO_LIMITS)} if "avro" in more else {}
    jars = [jar for purpose in more for jar in jars_of(purpose)]
    conf = submit_conf(*jvm_options, *jit, more_jars=jars) | store_conf(installation.tables)
    return limits | conf | ({STAYS: "true", **properties("staying.conf")} if stays else {})


def submit_conf(*jvm_options: str, more_jars: Sequence[Path] = ()) -> dict[str, str]:
    """Return the configuration that every session is submitted with, whatever the master.

    `jvm_options` are options of the driver's JVM, after the usual ones; `more_jars` are behind
    those of the class path, which the class archive is valid for.
    """
    jars = jars_of("spark")
    return {
        "spark.driver.extraJavaOptions": " ".join((*DRIVER_JVM_OPTIONS, *jvm_options)),
        # Only classes of the class path can be in the archive; executors get the same as --jars.
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.jars": ",".join(map(str, [*jars, *more_jars])),
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys.executable,  # the executors'
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }


def submit_command(installation: Installation, conf: dict[str, str], folder: Path) -> list[str]:
    """Return spark-submit with all options before the file; `folder` takes temporary files."""
    settings, more = installation.settings, list[str]()
    if settings.spark_conf is not None:
        more += ["--properties-file", str(settings.spark_conf)]
    if not is_local(settings.spark_master):
        more += ["--py-files", str(packages_zip(folder))]
    conf = conf_on(installation, settings.spark_master, conf)
    return [
        str(BIN / "spark-submit"),
        *("--master", settings.spark_master, *more),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def conf_on(installation: Installation, master: str, conf: dict[str, str]) -> dict[str, str]:
    """Return a configuration for a master, without what the file of SHARDPOST_SPARK_CONF sets.

    UsageError for what that may not set. Only with a local master is the driver on loopback: remote
    workers could not reach it there.
    """
    file, given = installation.settings.spark_conf, set[str]()
    if file is not None:
        try:
            given = {*_NAME.findall(file.read_text())}
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} (SHARDPOST_SPARK_CONF): cannot be read: {error}") from None
    if wrong := sorted(name for name in given if name in _OWN or name.startswith(_OWN_PREFIX)):
        reasons = (f"{name}: expected none: {_OWN.get(name, _OURS)}" for name in wrong)
        raise UsageError(f"{file} (SHARDPOST_SPARK_CONF): {'; '.join(reasons)}")
    left = {name: value for name, value in conf.items() if name not in given}
    memory = {"spark.driver.memory": installation.settings.driver_memory}
    return left | memory | (LOCAL_CONF if is_local(master) else {})


# What that file may not set, and why: another value would have no effect, or change results.
_OURS = "Shardpost sets it itself"
_OWN_PREFIX = "spark.sql."
_OWN = {
    "spark.master": "set SHARDPOST_SPARK_MASTER, or Airflow's connection for Spark",
    "spark.driver.memory": "set SHARDPOST_DRIVER_MEMORY",
    "spark.submit.deployMode": "the driver runs where it is started",
    "spark.speculation": "a mail or a letter must not be sent by two tasks at once",
    **dict.fromkeys(
        (
            "spark.driver.extraClassPath",
            "spark.driver.extraJavaOptions",
            "spark.jars",
            "spark.pyspark.driver.python",
            "spark.submit.pyFiles",
        ),
        _OURS,
    ),
}
_NAME = re.compile(r"^[ \t]*(spark\.[^\s=:]+)", re.MULTILINE)


def job_environment(installation: Installation, master: str | None = None) -> dict[str, str]:
    """Return the environment of a job on that master; by default that of the settings.

    This process's own, with the Spark of this Python. Settings, secrets among them, are in it and
    not in the arguments, which all can read.
    """
    local = is_local(master or installation.settings.spark_master)
    return {
        **os.environ,
        **installation.settings.environ(),
        "SPARK_HOME": str(spark_home()),
        **({"SPARK_LOCAL_IP": LOOPBACK_IP} if local else {}),
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
    }


def temporary_files_in(folder: Path) -> dict[str, str]:
    """Return the variables that put all temporary files of a job into a folder.

    So they are removed with it: a JVM that is killed leaves its own behind. SPARK_LOCAL_DIRS is
    left as the user set it.
    """
    java = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS", str(folder)),
        "SPARK_SUBMIT_OPTS": f'{java} "-Djava.io.tmpdir={folder}"'.strip(),
    }
