"""Our tables are Delta tables: Delta's own reader for Spark finds in them what we find."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from shardpost.delta import snapshots
from shardpost.delta.query import path_of, rows
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS
from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.spark.jars import jars_of
from tests.support.compacting import run
from tests.support.interpreted_plans import plan_conf
from tests.support.reference import closed, position, produce

READER = Path(__file__).parents[1] / "support" / "delta_reader.py"
TABLES = (SHARE_HOLDERS, POSITIONS, POSITION_EVENTS)


def test_deltas_own_reader_sees_the_rows_of_every_snapshot(fresh: Callable[[], Settings]) -> None:
    settings = fresh()
    produce(settings, [position(str(n), f"client{n % 5}", "NASDAQ") for n in range(40)])
    run(settings)
    produce(settings, [closed("1"), position("2", "client9", "LON"), position("50", "new", "NYSE")])
    run(settings)
    versions = [
        (table, snapshot.tables[table.name])
        for snapshot in snapshots.list_all(settings)
        for table in TABLES
    ]
    theirs = read_by_delta(settings, [(path_of(settings, t), v) for t, v in versions])
    for (table, version), found in zip(versions, theirs, strict=True):
        sql = f"SELECT * FROM {table.name}"  # noqa: S608 - a name of ours
        ours = rows(settings, sql, {table: version})
        names = ("client", "key", "seq", "snapshot", "positions", "exchange", "is_open", "kind")
        assert sorted(map(str, ([row.get(name) for name in names] for row in found))) == sorted(
            map(str, ([row.get(name) for name in names] for row in ours))
        )


def read_by_delta(settings: Settings, tables: list[tuple[str, int]]) -> list[list[dict[str, str]]]:
    jars = ",".join(map(str, jars_of("tests")))
    conf = {
        **plan_conf(),
        **submit.submit_conf(*submit.SHORT_RUN_JIT),
        "spark.jars": jars,
        "spark.driver.extraClassPath": jars.replace(",", ":"),
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",  # by default 50 tasks read a table's log
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    done = subprocess.run(
        [
            *submit.submit_command(settings, conf),
            str(READER),
            *(str(part) for table in tables for part in table),
        ],
        env=submit.job_environment(settings),
        cwd=settings.home,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
