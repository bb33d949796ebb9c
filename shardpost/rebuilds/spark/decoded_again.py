"""Rows of a history, decoded again from the raw records that they have."""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import RETRY_NAMES, InputTables
from shardpost.holders.spark.decoding import decoded
from shardpost.rebuilds.spark.erased_records import is_erased
from shardpost.spark.delta_files import columns_of

_KEPT = "as_it_was"
_ORDER = ("seq", "snapshot", *RETRY_NAMES)
_AS_THEY_ARE = ("partition", "offset", "timestamp", "value", *_ORDER)


def decoded_again(rows: DataFrame, tables: InputTables) -> DataFrame:
    """Return rows of a history as its input's decoder now makes them.

    Place and order stay as they are, and so do rows that no decoding has made: those that closed a
    key, retries of an unknown origin, and records whose contact was erased.
    """
    chosen = {name: column.alias(name) for name, column in _chosen(tables).items()}
    columns = columns_of(tables.history)
    return _with_former(rows, tables).select(*(chosen.get(name, F.col(name)) for name in columns))


def is_decoded_alike(rows: DataFrame, tables: InputTables) -> bool:
    """Tell whether `decoded_again` would return those very rows."""
    same = (now.eqNullSafe(_former(name)) for name, now in _chosen(tables).items())
    # An aggregate: a filter would be evaluated where it parses each record once per column.
    found = _with_former(rows, tables).agg(F.bool_and(reduce(and_, same)).alias("alike"))
    return all(row["alike"] is not False for row in found.collect())


def _with_former(rows: DataFrame, tables: InputTables) -> DataFrame:
    """Return the raw records decoded, each with the columns that it had, as a struct."""
    former = F.struct(*(F.col(name) for name in _made_by_decoding(tables))).alias(_KEPT)
    key = F.coalesce("raw_key", F.col("key").cast("binary")).alias("key")
    raw = rows.select(key, "headers", *_AS_THEY_ARE, former)
    return decoded(raw, tables.fields, (*_ORDER, _KEPT))


def _chosen(tables: InputTables) -> dict[str, Column]:
    """Return the columns that decoding makes, of the rows of `_with_former`."""
    kept = _is_kept()
    return {
        name: F.when(kept, _former(name)).otherwise(F.col(name))
        for name in _made_by_decoding(tables)
    }


def _made_by_decoding(tables: InputTables) -> list[str]:
    return [name for name in columns_of(tables.history) if name not in _AS_THEY_ARE]


def _former(name: str) -> Column:
    return F.col(f"{_KEPT}.{name}")


def _is_kept() -> Column:
    kind, reason = _former("kind"), _former("reason")
    is_rejected = kind == RecordKind.REJECTED.value
    without_origin = is_rejected & F.col("retry_offset").isNotNull() & F.col("seq").isNull()
    gone = is_erased(kind, F.col("value"), reason)
    return F.coalesce((kind == RecordKind.RECONCILED.value) | without_origin | gone, F.lit(False))
