"""Records whose contact was erased: the topics may still have it, tables made of them may not."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.erased_rows import ERASED
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.record_kind import RecordKind
from shardpost.settings import Settings
from shardpost.spark import delta_files

_PLACE = ("partition", "offset")


def is_erased(kind: Column, value: Column, reason: Column) -> Column:
    """Tell which rows of a history were erased; null where nothing is known of a row."""
    of_upsert = (kind == RecordKind.UPSERT.value) & value.isNull()
    return of_upsert | ((kind == RecordKind.REJECTED.value) & (reason == ERASED))


def erased_rows(
    spark: SparkSession, settings: Settings, view: Snapshot, history: Table
) -> DataFrame:
    """Return the rows of a history, as a view has it, that were erased."""
    there = delta_files.read(spark, settings, view.located(history), view.tables[history.name])
    return there.where(is_erased(F.col("kind"), F.col("value"), F.col("reason")))


def without_originals(records: DataFrame, erased: DataFrame) -> DataFrame:
    """Return the records of a history's own topic but for those that were erased."""
    places = erased.where(F.col("retry_offset").isNull()).select(*_PLACE)
    return records.join(F.broadcast(places), [*_PLACE], "left_anti")


def without_retries(records: DataFrame, erased: DataFrame, topic: str) -> DataFrame:
    """Return the records of a retry topic but for those that were erased."""
    places = erased.where(F.col("retry_topic") == topic).select(
        F.col("retry_partition").alias("partition"), F.col("retry_offset").alias("offset")
    )
    return records.join(F.broadcast(places), [*_PLACE], "left_anti")
