"""Records whose contact was erased: the topics may still have it, tables made of them may not."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.erased_rows import ERASED
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.fields import RecordKind
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
    return _rows(spark, settings, view, history).where(_was_erased())


def known_rows(
    spark: SparkSession, settings: Settings, view: Snapshot, history: Table
) -> DataFrame:
    """Return the rows that were not."""
    return _rows(spark, settings, view, history).where(~_was_erased())


def known_originals(records: DataFrame, known: DataFrame) -> DataFrame:
    """Return the records of a history's own topic that it has, and that were not erased.

    Others were erased, or had been pruned by then: nobody can tell of whom these are.
    """
    places = known.where(F.col("retry_offset").isNull()).select(*_PLACE)
    return records.join(places, [*_PLACE], "left_semi")


def known_retries(records: DataFrame, known: DataFrame, topic: str) -> DataFrame:
    """Return the records of a retry topic that it has so."""
    places = known.where(F.col("retry_topic") == topic).select(
        F.col("retry_partition").alias("partition"), F.col("retry_offset").alias("offset")
    )
    return records.join(places, [*_PLACE], "left_semi")


def _rows(spark: SparkSession, settings: Settings, view: Snapshot, history: Table) -> DataFrame:
    return delta_files.read(spark, settings, view.located(history), view.tables[history.name])


def _was_erased() -> Column:
    found = is_erased(F.col("kind"), F.col("value"), F.col("reason"))
    return F.coalesce(found, F.lit(False))
