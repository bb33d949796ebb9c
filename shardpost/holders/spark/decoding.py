"""Decoding raw records into columns, strictly, in the JVM; undecodable ones keep their reason.

A value must be exactly one JSON object whose fields have the declared types (model/fields.py). It
is parsed as the only element of an array, since Spark ignores whatever follows a JSON value.

Parsed into columns of their types, numbers and flags pass as texts; parsed into variants, nothing
passes, but that takes three times as long. So a value is parsed into columns first, and again into
variants where a text could have been something else, or anything else is out of the ordinary.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.fields import Field, FieldType
from shardpost.holders.model.record_kind import RecordKind

# The types that `schema_of_variant` gives for good values; a number may be a DECIMAL too.
VARIANT_TYPES = {
    FieldType.TEXT: ("STRING",),
    FieldType.FLAG: ("BOOLEAN",),
    FieldType.NUMBER: ("BIGINT", "DOUBLE", "FLOAT"),
}
PLAIN_TYPES = {FieldType.TEXT: "STRING", FieldType.FLAG: "BOOLEAN", FieldType.NUMBER: "DOUBLE"}
# The characters of a value that a reason quotes.
MAX_QUOTED = 100
# Integers below it are exact as DOUBLE.
EXACT_BELOW = 2**53

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


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
        .when(~rejected, _value(field).try_cast(field.column_type))
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
    plain = _from_json(_plain_schema(fields))
    is_plain = F.coalesce(_is_plain(fields, plain), F.lit(False))
    return raw.select(
        *("raw_key", "partition", "offset", "timestamp", "value", "headers"),
        *passed,
        is_plain.alias("is_plain"),
        *(_plain_value(field, plain).alias(_plain_name(field)) for field in fields),
        F.when(~is_plain, _from_json(_schema(fields))).alias("json"),
        F.when(~is_plain, _closes_the_array()).alias("closes_the_array"),
    )


# Expressions and not columns: a column of the same bytes would copy every record at every stage.
def _key() -> Column:
    return F.col("raw_key").cast("string")


def _text() -> Column:
    return F.col("value").cast("string")


def _from_json(schema: str) -> Column:
    return F.from_json(F.concat(F.lit("["), _text(), F.lit("]")), schema, _STRICT)


def _plain_schema(fields: tuple[Field, ...]) -> str:
    return (
        f"array<struct<{','.join(f'{field.name}:{PLAIN_TYPES[field.type]}' for field in fields)}>>"
    )


def _is_plain(fields: tuple[Field, ...], plain: Column) -> Column:
    """Tell which records are good beyond doubt; null means no."""
    is_plain = F.is_valid_utf8(_key()) & (F.length(_key()) > 0) & F.is_valid_utf8(_text())
    is_plain &= (F.size(plain) == 1) & ~F.contains(_text(), F.lit("]"))
    for field in fields:
        value = _of_first(plain, field)
        if field.type is FieldType.TEXT:
            is_plain &= _was_text(value)
        elif field.type is FieldType.NUMBER:
            is_plain &= (F.abs(value) < EXACT_BELOW) & (value == F.floor(value))
        else:
            is_plain &= value.isNotNull()
    return is_plain


def _was_text(value: Column) -> Column:
    """Tell whether a text cannot have been a number, a flag, an object or an array."""
    is_letter = value.between("A", "[") | value.between("a", "{")
    return is_letter & ~value.isin("[", "{", "true", "false")


def _of_first(array: Column | str, field: Field) -> Column:
    return F.get(array, F.lit(0)).getField(field.name)


def _plain_value(field: Field, plain: Column) -> Column:
    value = _of_first(plain, field)
    return value.try_cast("bigint").cast("string") if field.type is FieldType.NUMBER else value


def _plain_name(field: Field) -> str:
    return f"plain_{field.column}"


def _schema(fields: tuple[Field, ...]) -> str:
    return f"array<struct<{','.join(f'{field.name}:variant' for field in fields)}>>"


def _value(field: Field) -> Column:
    return _of_first("json", field)


def _reason(fields: tuple[Field, ...]) -> Column:
    reason = (
        F.when(F.col("is_plain"), None)
        .when(F.col("raw_key").isNull(), "expected a key, found none")
        .when(~F.is_valid_utf8(_key()), "expected a key in UTF-8, found other bytes")
        .when(F.length(_key()) == 0, "expected a key, found an empty one")
        .when(F.col("value").isNull(), None)
        .when(~F.is_valid_utf8(_text()), "expected a value in UTF-8, found other bytes")
        .when(
            F.col("json").isNull()
            | (F.size("json") != 1)
            | F.get("json", F.lit(0)).isNull()
            | F.col("closes_the_array"),
            _expected("one JSON object", _text()),
        )
    )
    for field in fields:
        reason = reason.when(
            _is_wrong(field), _expected(f"{field.expected} for {field.name}", _found(field))
        )
    return reason


def _closes_the_array() -> Column:
    """Tell whether a value closes the array that it is parsed in; few values have a bracket at all.

    What closes an array there cannot close an object there.
    """
    in_object = F.from_json(F.concat(F.lit('{"v":'), _text(), F.lit("}")), "v VARIANT", _STRICT)
    return F.contains(_text(), F.lit("]")) & in_object.getField("v").isNull()


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
