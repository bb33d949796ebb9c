"""The one SparkSession of a job, and its view of the Delta tables."""

from pyspark.sql import DataFrame, SparkSession

from shardpost.adapters.delta import path_of
from shardpost.domain.tables import Table
from shardpost.settings import Settings

# The rest (master, jars, Delta's extensions) comes with spark-submit: adapters/spark_submit.py.
SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def start(app: str) -> SparkSession:
    """Return the session of this driver."""
    builder = SparkSession.builder.appName(f"shardpost {app}")
    for name, value in SESSION_CONF.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, settings: Settings, table: Table, version: int) -> DataFrame:
    """Return a table at one version, as a snapshot names it."""
    path = path_of(settings, table)
    return spark.read.format("delta").option("versionAsOf", version).load(path)
