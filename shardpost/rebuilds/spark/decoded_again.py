"""Rows of a history, decoded again from the raw records that they have."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.delta.erased_rows import ERASED
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.model.tables import RETRY_NAMES, InputTables
from shardpost.holders.spark.decoding import decoded
from shardpost.spark.delta_files import columns_of

_KEPT = "as_it_was"
_ORDER = ("seq", "snapshot", *RETRY_NAMES)
_PLACE = ("partition", "offset", "timestamp", *_ORDER)


def decoded_again(rows: DataFrame, tables: InputTables) -> DataFrame:
    """Return rows of a history as its input's decoder now makes them.

    Place and order stay as they are, and so do rows that no decoding has made: those that closed a
    key, retries of an unknown origin, and records whose contact was erased.
    """
    columns = columns_of(tables.history)
    own = [name for name in columns if name not in _PLACE]
    before = F.struct(*(F.col(name) for name in own)).alias(_KEPT)
    key = F.coalesce("raw_key", F.col("key").cast("binary")).alias("key")
    raw = rows.select(key, "value", "headers", *_PLACE, before)
    found = decoded(raw, tables.fields, (*_ORDER, _KEPT))
    kept = _is_kept()
    chosen = {
        name: F.when(kept, F.col(f"{_KEPT}.{name}")).otherwise(F.col(name)).alias(name)
        for name in own
    }
    return found.select(*(chosen.get(name, F.col(name)) for name in columns))


def _is_kept() -> Column:
    kind, reason = F.col(f"{_KEPT}.kind"), F.col(f"{_KEPT}.reason")
    is_rejected = kind == RecordKind.REJECTED.value
    without_origin = is_rejected & F.col("retry_offset").isNotNull() & F.col("seq").isNull()
    is_erased = (kind == RecordKind.UPSERT.value) & F.col("value").isNull()
    is_erased |= is_rejected & (reason == ERASED)
    return F.coalesce(
        (kind == RecordKind.RECONCILED.value) | without_origin | is_erased, F.lit(False)
    )
