"""Run a file of spark_jobs/ through spark-submit, the same way from a command as from a DAG."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shardpost.checkout import SPARK_JOBS
from shardpost.errors import BAD_USAGE, COULD_NOT, DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.settings import Settings
from shardpost.spark import class_archive
from shardpost.spark.jars import spark_jars
from shardpost.spark.job_folder import job_folder
from shardpost.spark.job_spec import JobSpec
from shardpost.spark.parent_process import end_with_parent

CODES = (DONE, COULD_NOT, BAD_USAGE, NEEDS_ATTENTION)

# A usual run is over before the optimising compiler has paid for itself; a long one takes twice as
# long without it.
QUICK = ("-XX:TieredStopAtLevel=1",)
# Even there it would spend most of its time on what runs seldom: it is to take what runs often,
# and to make less of each.
LONG = (
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=4000",
    "-XX:Tier4CompileThreshold=40000",
    "-XX:FreqInlineSize=100",
    "-XX:InlineSmallCode=1000",
    "-XX:MaxInlineLevel=6",
    "-XX:LoopUnrollLimit=20",
)
DRIVER_JAVA = (
    f"-Dlog4j2.configurationFile=file:{SPARK_JOBS}/log4j2.properties",
    "-XX:+UseParallelGC",
    # No collections on the way to a heap that every run comes to.
    "-Xms512m",
    "-XX:MetaspaceSize=256m",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)


def job_conf(settings: Settings, job: JobSpec, *java: str) -> dict[str, str]:
    """Return `submit_conf` for what that job has to do now."""
    return submit_conf(*java, *(LONG if job.is_long(settings) else QUICK))


def submit_conf(*java: str) -> dict[str, str]:
    """Return what every session of ours is submitted with, whatever the master.

    `java` are options of the driver's JVM beside the usual ones.
    """
    jars = spark_jars()
    return {
        "spark.driver.extraJavaOptions": " ".join((*DRIVER_JAVA, *java)),
        # Only classes of the class path can be in the archive; executors get the same as --jars.
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }


LOOPBACK_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def job_file(job: JobSpec) -> Path:
    """Return the path of a job's file."""
    return SPARK_JOBS / f"{job.name}.py"


def submit(settings: Settings, job: JobSpec, args: list[str]) -> tuple[int, Any]:
    """Run the job to its end; return its exit code and the JSON document that it left, or None.

    The job's standard error and progress go to ours; standard output stays free for the command's
    own. The job ends with this process, however this one ends.
    """
    with (
        job_folder() as folder,
        class_archive.use_or_make(job) as archive,
    ):
        result = folder / "result.json"
        whole = [
            *command(settings, job_conf(settings, job, *archive.java)),
            str(job_file(job)),
            *args,
            "--result",
            str(result),
        ]
        code = subprocess.run(
            whole,
            env=environment(settings) | temporary_files_in(folder),
            cwd=folder,  # Spark leaves empty folders where it runs
            stdout=sys.stderr,
            check=False,
            preexec_fn=end_with_parent,
        ).returncode
        if code in (DONE, NEEDS_ATTENTION):
            archive.keep()
        if code not in CODES:
            raise ShardpostError(f"{job.name} was broken off (exit code {code}): run it again")
        return code, json.loads(result.read_text()) if result.exists() else None


def temporary_files_in(folder: Path) -> dict[str, str]:
    """Return variables by which all temporary files of a job are in a folder that goes with it.

    A JVM that is killed leaves its own behind. Where Spark spills to is left as its user set it.
    """
    java = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS", str(folder)),
        "SPARK_SUBMIT_OPTS": f'{java} "-Djava.io.tmpdir={folder}"'.strip(),
    }


def command(settings: Settings, conf: dict[str, str] | None = None) -> list[str]:
    """Return the spark-submit of this environment with all that precedes the job's file."""
    conf = conf or submit_conf(*QUICK, *class_archive.use())
    if settings.spark_master.startswith("local"):
        conf = conf | LOOPBACK_CONF
    return [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", settings.spark_master, "--driver-memory", settings.driver_memory),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def _spark_home() -> Path:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None  # noqa: S101, PT018 - a dependency of ours
    return Path(found.origin).parent


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a job.

    This process's own, with one Python for driver and workers, and the Spark of that Python.
    """
    python = sys.executable
    return {
        **os.environ,
        **settings.environ(),
        "SPARK_HOME": str(_spark_home()),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(python).parent}:{os.environ.get('PATH', '')}",
    }
