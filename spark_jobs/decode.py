"""Decoding raw records into columns, strictly, in the JVM; what cannot be decoded keeps its reason.

A value must be exactly one JSON object whose fields have the declared types. It is parsed as the
only element of an array, since Spark would pass over whatever follows a JSON value.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

TEXT = ("STRING",)
FLAG = ("BOOLEAN",)
NUMBER = ("BIGINT", "DOUBLE", "FLOAT")
SHOWN = 100

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


@dataclass(frozen=True)
class Field:
    """One JSON field.

    Its name, its column, the types it may have, and whether it may be missing.
    """

    name: str
    column: str
    types: tuple[str, ...]
    required: bool = True
    cast: str = "string"

    @property
    def wanted(self) -> str:
        """Return what the field has to be, in words."""
        words = {TEXT: "text", FLAG: "true or false", NUMBER: "a number"}[self.types]
        return words if self.required else f"{words}, or nothing,"


POSITION_FIELDS = (
    Field("Client", "client", TEXT),
    Field("Ticker", "ticker", TEXT),
    Field("Amount", "amount", NUMBER),
    Field("Exchange", "exchange", TEXT),
)
CLIENT_FIELDS = (
    Field("Name", "name", TEXT, required=False),
    Field("Email", "email", TEXT, required=False),
    Field("Subscribed", "subscribed", FLAG, cast="boolean"),
)
EXCHANGE_FIELDS = (Field("Country", "country", TEXT, required=False),)


def decoded(raw: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    """Return raw records with key STRING, kind, reason and the fields' columns.

    kind is upsert, tombstone or rejected. Only rejected records have a reason, raw_key and headers.
    """
    keys = raw.withColumnRenamed("key", "raw_key").withColumn(
        "key", F.col("raw_key").cast("string")
    )
    parsed = keys.withColumn("text", F.col("value").cast("string")).withColumn(
        "json", F.from_json(F.concat(F.lit("["), "text", F.lit("]")), _schema(fields), _STRICT)
    )
    judged = parsed.withColumn("object", F.get("json", F.lit(0))).withColumn(
        "reason", _reason(fields)
    )
    rejected = F.col("reason").isNotNull()
    kind = (
        F.when(rejected, "rejected").when(F.col("value").isNull(), "tombstone").otherwise("upsert")
    )
    good = [
        F.when(~rejected, _value(field).try_cast(field.cast)).alias(field.column)
        for field in fields
    ]
    return judged.select(
        F.when(F.is_valid_utf8("key"), F.col("key")).alias("key"),
        *("partition", "offset", "timestamp", "value", kind.alias("kind"), "reason"),
        *(F.when(rejected, F.col(name)).alias(name) for name in ("raw_key", "headers")),
        *good,
    )


def _schema(fields: tuple[Field, ...]) -> str:
    return f"array<struct<{','.join(f'{field.name}:variant' for field in fields)}>>"


def _value(field: Field) -> Column:
    return F.col("object").getField(field.name)


def _reason(fields: tuple[Field, ...]) -> Column:
    judged = (
        F.when(F.col("raw_key").isNull(), "expected a key, found none")
        .when(~F.is_valid_utf8("key"), "expected a key in UTF-8, found other bytes")
        .when(F.length("key") == 0, "expected a key, found an empty one")
        .when(F.col("value").isNull(), None)
        .when(~F.is_valid_utf8("text"), "expected a value in UTF-8, found other bytes")
        .when(
            F.col("json").isNull()
            | (F.size("json") != 1)
            | F.col("object").isNull()
            | _closes_the_array(F.col("text")),
            _expected("one JSON object", F.col("text")),
        )
    )
    for field in fields:
        judged = judged.when(
            _wrong(field), _expected(f"{field.wanted} for {field.name}", _found(field))
        )
    return judged


def _closes_the_array(text: Column) -> Column:
    """Tell whether a value ends the array that it is parsed in; few values have a bracket at all.

    What closes an array cannot close an object in the same place.
    """
    in_object = F.from_json(F.concat(F.lit('{"v":'), text, F.lit("}")), "v VARIANT", _STRICT)
    return F.contains(text, F.lit("]")) & in_object.getField("v").isNull()


def _wrong(field: Field) -> Column:
    found = F.schema_of_variant(_value(field))  # null if it is missing, VOID if it is null
    if field.types == NUMBER:
        fits = found.isin(*NUMBER) | found.startswith("DECIMAL(")
    else:
        fits = found.isin(*field.types)
    missing = F.lit(False) if field.required else found.isNull() | (found == "VOID")
    return ~F.coalesce(fits, F.lit(False)) & ~missing


def _found(field: Field) -> Column:
    return F.coalesce(F.to_json(_value(field)), F.lit("nothing"))


def _expected(wanted: str, found: Column) -> Column:
    return F.concat(F.lit(f"expected {wanted}, found "), F.left(found, F.lit(SHOWN)))
