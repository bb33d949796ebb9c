"""Delta's own reader for Spark, in a process of its own: its jar is for tests only."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.spark.jars import jars_of
from tests.support.installed import installed
from tests.support.interpreted_plans import INTERPRETED

READER = Path(__file__).parent / "delta_reader.py"


@contextmanager
def delta_reader(
    settings: Settings, metastore: Path | None = None
) -> Iterator[Callable[[dict[str, Any]], Any]]:
    """Give what asks it (delta_reader.py says what), until it is ended.

    With `metastore`, its catalog is a metastore of Hive in that folder.
    """
    errors, pipe = settings.home / "delta_reader.log", settings.home / "delta_reader.pipe"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    # Opened for both, so that nobody waits for a reader that has ended.
    with errors.open("w") as log, os.fdopen(os.open(pipe, os.O_RDWR), "wb", 0) as requests:
        reader = subprocess.Popen(
            [
                *submit.submit_command(
                    installed(settings), _conf() | _hive(metastore), settings.home
                ),
                str(READER),
                str(pipe),
            ],
            env=submit.job_environment(installed(settings)),
            cwd=settings.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        answers = reader.stdout
        assert answers is not None

        def ask(request: dict[str, Any]) -> Any:
            requests.write(f"{json.dumps(request)}\n".encode())
            said = []
            for line in answers:  # also what its process wrote to standard error
                if line.startswith((b"[", b"{")):
                    return json.loads(line)
                said.append(line.decode())
            raise AssertionError("".join(said) + errors.read_text())

        try:
            yield ask
            requests.write(b"\n")
            reader.wait(60)
        finally:
            reader.kill()
            reader.wait()
            answers.close()


def read_versions(
    settings: Settings, versions: list[tuple[str, int]]
) -> list[list[dict[str, Any]]]:
    """Return the rows of versions of tables, by their paths, without nulls."""
    with delta_reader(settings) as ask:
        found: list[list[dict[str, Any]]] = ask({"versions": versions})
        return found


def _conf() -> dict[str, str]:
    jars = ",".join(map(str, jars_of("tests")))
    return {
        **INTERPRETED,
        **submit.submit_conf(*submit.SHORT_RUN_JIT),
        "spark.jars": jars,
        "spark.driver.extraClassPath": jars.replace(",", ":"),
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",  # by default 50 tasks read a table's log
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _hive(metastore: Path | None) -> dict[str, str]:
    if metastore is None:
        return {}
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(metastore / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={metastore / 'metastore'};create=true"
        ),
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
