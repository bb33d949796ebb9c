"""Decoding raw records into columns, strictly, in the JVM; undecodable ones keep their reason.

A value must be exactly one JSON object (strict_json.py) whose fields have the declared types
(model/fields.py); the rules are those of docs/compaction.md.

Parsed into columns of their types, numbers and flags pass as texts; parsed into variants, nothing
passes, but that takes three times as long. So a value is parsed into columns first, and again into
variants where a text could have been something else, or anything else is out of the ordinary.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.fields import Field, FieldType
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.spark import strict_json

# The types that `schema_of_variant` gives for good values; a number may be a DECIMAL too.
INEXACT_TYPES = ("DOUBLE", "FLOAT")
VARIANT_TYPES = {
    FieldType.TEXT: ("STRING",),
    FieldType.FLAG: ("BOOLEAN",),
    FieldType.NUMBER: ("BIGINT", *INEXACT_TYPES),
}
# What is no whole number of 64 bits is no plain number: a DOUBLE could be a rounded one.
PLAIN_TYPES = {FieldType.TEXT: "STRING", FieldType.FLAG: "BOOLEAN", FieldType.NUMBER: "BIGINT"}
# The characters of a value that a reason quotes.
MAX_QUOTED = 100


def decoded(raw: DataFrame, fields: tuple[Field, ...], passed: tuple[str, ...] = ()) -> DataFrame:
    """Return raw records as rows of a history: key (STRING), kind, reason, fields; and `passed`.

    `raw` is as kafka_source.read_ranges returns it; `passed` are other columns of it to keep. Only
    rejected records have a reason, raw_key and headers.
    """
    parsed = _parsed(raw, fields, passed).withColumn("reason", _reason(fields))
    rejected = F.col("reason").isNotNull()
    kind = (
        F.when(rejected, RecordKind.REJECTED.value)
        .when(F.col("value").isNull(), RecordKind.TOMBSTONE.value)
        .otherwise(RecordKind.UPSERT.value)
    )
    columns = [
        F.when(F.col("is_plain"), F.col(_plain_name(field)))
        .when(~rejected, _column_value(field))
        .alias(field.column)
        for field in fields
    ]
    return parsed.select(
        F.when(F.is_valid_utf8(_key()), _key()).alias("key"),
        *("partition", "offset", "timestamp", "value", kind.alias("kind"), "reason"),
        *map(F.col, passed),
        *(F.when(rejected, F.col(name)).alias(name) for name in ("raw_key", "headers")),
        *columns,
    )


def _parsed(raw: DataFrame, fields: tuple[Field, ...], passed: tuple[str, ...]) -> DataFrame:
    """Parse all values in one projection: Spark cannot fuse a projection that parses with others.

    Each value is parsed once, since Spark evaluates equal expressions of a projection once.
    """
    raw = raw.withColumnRenamed("key", "raw_key")
    plain = strict_json.parsed(_text(), _schema(fields, PLAIN_TYPES))
    is_plain = F.coalesce(_is_plain(fields, plain), F.lit(False))
    variants = strict_json.parsed(_text(), _schema(fields, dict.fromkeys(FieldType, "VARIANT")))
    return raw.select(
        *("raw_key", "partition", "offset", "timestamp", "value", "headers"),
        *passed,
        is_plain.alias("is_plain"),
        *(_plain_value(field, plain).alias(_plain_name(field)) for field in fields),
        F.when(~is_plain, variants).alias("json"),
        F.when(~is_plain, strict_json.closes_the_array(_text())).alias("closes_the_array"),
    )


# Expressions and not columns: a column of the same bytes would copy every record at every stage.
def _key() -> Column:
    return F.col("raw_key").cast("string")


def _text() -> Column:
    return F.col("value").cast("string")


def _schema(fields: tuple[Field, ...], types: Mapping[FieldType, str]) -> str:
    return ",".join(f"{field.name}:{types[field.type]}" for field in fields)


def _is_plain(fields: tuple[Field, ...], plain: Column) -> Column:
    """Tell which records are good beyond doubt; null means no."""
    is_plain = F.is_valid_utf8(_key()) & (F.length(_key()) > 0) & F.is_valid_utf8(_text())
    is_plain &= strict_json.is_one_object(plain) & ~strict_json.may_close_the_array(_text())
    is_plain &= ~strict_json.may_have_surrogates(_text())
    for field in fields:
        value = strict_json.field_of(plain, field.name)
        is_plain &= _was_text(value) if field.type is FieldType.TEXT else value.isNotNull()
    return is_plain


def _was_text(value: Column) -> Column:
    """Tell whether a text cannot have been a number, a flag, an object or an array."""
    is_letter = value.between("A", "[") | value.between("a", "{")
    return is_letter & ~value.isin("[", "{", "true", "false")


def _plain_value(field: Field, plain: Column) -> Column:
    return strict_json.field_of(plain, field.name).cast(field.column_type)


def _plain_name(field: Field) -> str:
    return f"plain_{field.column}"


def _value(field: Field) -> Column:
    return strict_json.field_of(F.col("json"), field.name)


def _column_value(field: Field) -> Column:
    """Return the value of a good field; a number that no type holds exactly as it was written."""
    value = _value(field).try_cast(field.column_type)
    if field.type is not FieldType.NUMBER:
        return value
    is_inexact = F.schema_of_variant(_value(field)).isin(*INEXACT_TYPES)
    as_written = strict_json.parsed(
        strict_json.with_numbers_quoted(_text()), f"{field.name}:STRING"
    )
    return F.when(is_inexact, strict_json.field_of(as_written, field.name)).otherwise(value)


def _reason(fields: tuple[Field, ...]) -> Column:
    is_object = strict_json.is_one_object(F.col("json")) & ~F.col("closes_the_array")
    surrogate = strict_json.unpaired_surrogate(_text())
    reason = (
        F.when(F.col("is_plain"), None)
        .when(F.col("raw_key").isNull(), "expected a key, found none")
        .when(~F.is_valid_utf8(_key()), "expected a key in UTF-8, found other bytes")
        .when(F.length(_key()) == 0, "expected a key, found an empty one")
        .when(F.col("value").isNull(), None)
        .when(~F.is_valid_utf8(_text()), "expected a value in UTF-8, found other bytes")
        .when(~F.coalesce(is_object, F.lit(False)), _expected("one JSON object", _text()))
        .when(
            strict_json.may_have_surrogates(_text()) & (surrogate != ""),
            _expected("surrogates in pairs", surrogate),
        )
    )
    for field in fields:
        reason = reason.when(
            _is_wrong(field), _expected(f"{field.expected} for {field.name}", _found(field))
        )
    return reason


def _is_wrong(field: Field) -> Column:
    found = F.schema_of_variant(_value(field))  # null if it is missing, VOID if it is null
    if field.type is FieldType.NUMBER:
        fits = found.isin(*VARIANT_TYPES[field.type]) | found.startswith("DECIMAL(")
    else:
        fits = found.isin(*VARIANT_TYPES[field.type])
    missing = F.lit(False) if field.required else found.isNull() | (found == "VOID")
    return ~F.coalesce(fits, F.lit(False)) & ~missing


def _found(field: Field) -> Column:
    return F.coalesce(F.to_json(_value(field)), F.lit("nothing"))


def _expected(expected: str, found: Column) -> Column:
    return F.concat(F.lit(f"expected {expected}, found "), F.left(found, F.lit(MAX_QUOTED)))
