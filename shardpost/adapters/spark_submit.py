"""Run a file of spark_jobs/ through spark-submit, the same way from a command as from a DAG."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shardpost.adapters.jars import spark_jars
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# What every session of ours is submitted with, whatever the master.
SUBMIT_CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
LOOPBACK_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def job_file(job: str) -> Path:
    """Return the path of a job of spark_jobs/ by its name."""
    spec = importlib.util.find_spec("spark_jobs")
    if spec is None or not spec.submodule_search_locations:
        raise ShardpostError("the package spark_jobs is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / f"{job}.py"


def submit(settings: Settings, job: str, args: list[str]) -> tuple[int, Any]:
    """Run the job to its end; return its exit code and the JSON document that it left, or None.

    The job's standard error and progress go to ours; standard output stays free for the command's own.
    """
    with tempfile.TemporaryDirectory(prefix="shardpost-") as folder:
        result = Path(folder) / "result.json"
        command = [*_spark_submit(settings), str(job_file(job)), *args, "--result", str(result)]
        code = subprocess.run(
            command, env=_environment(), stdout=sys.stderr, check=False
        ).returncode
        return code, json.loads(result.read_text()) if result.exists() else None


def _spark_submit(settings: Settings) -> list[str]:
    conf = SUBMIT_CONF | (LOOPBACK_CONF if settings.spark_master.startswith("local") else {})
    return [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", settings.spark_master, "--driver-memory", settings.driver_memory),
        *("--jars", ",".join(map(str, spark_jars()))),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def _environment() -> dict[str, str]:
    python = sys.executable
    return {
        **os.environ,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(python).parent}:{os.environ.get('PATH', '')}",
    }
