"""Decoding raw records into columns, strictly, in the JVM; undecodable ones keep their reason.

A value must be exactly one JSON object whose fields have the declared types (model/fields.py); the
rules are those of docs/compaction.md. Parsed into columns of their types, numbers and flags pass as
texts; parsed into variants, nothing passes, but that takes three times as long. So a value is
parsed into columns first, and again into variants where a text could have been something else, or
anything else is out of the ordinary.

`from_json` forgives much if it is not asked otherwise. A value is parsed as the only element of an
array, since Spark ignores whatever follows a JSON value. The array is the field of an object, for
two reasons: only of an object can `from_json` say in a column that something in it could not be
parsed, where it would otherwise return what it made of the rest
(`spark.sql.json.enablePartialResults` is on by default); and of text that begins with `{"` nobody
guesses an encoding other than UTF-8. Of a field that is given twice the last counts. What RFC 8259
does not have is refused: comments, single quotes, leading zeros, `NaN`, escapes of any character,
control characters in texts.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.fields import (
    BLANKS,
    MAX_QUOTED,
    NOT_BLANK,
    Field,
    FieldType,
    RecordKind,
    has_id_as_key,
)

# How deep objects and arrays may nest in a value, and how long a number may be.
MAX_DEPTH = 1000
MAX_NUMBER_LENGTH = 1000

_VALUES, _BROKEN = "v", "broken"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BROKEN,
    "allowComments": "false",
    "allowUnquotedFieldNames": "false",
    "allowSingleQuotes": "false",
    "allowNumericLeadingZeros": "false",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
    "maxNestingDepth": str(MAX_DEPTH + 2),  # the object and the array around it
    "maxNumLen": str(MAX_NUMBER_LENGTH),
}
# Escapes of UTF-16's surrogates, \ud800 to \udfff.
_SURROGATE = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"

# A number outside of texts, after all that is between it and the number before.
_NUMBER = r'\G((?:[^"0-9-]|"(?:[^"\\]|\\.)*+")*+)(-?[0-9][0-9.eE+-]*+)'


def parsed(text: Column, type_: str) -> Column:
    """Return text parsed as values of a type: VARIANT, or a STRUCT; for the functions below."""
    array = F.concat(F.lit(f'{{"{_VALUES}":['), text, F.lit("]}"))
    return F.from_json(array, f"{_VALUES} ARRAY<{type_}>, {_BROKEN} STRING", _OPTIONS)


def is_one_object(found: Column) -> Column:
    """Tell whether what was `parsed` is one object, provided that it does not `close_the_array`."""
    values = found.getField(_VALUES)
    is_one = F.size(values).eqNullSafe(F.lit(1)) & F.get(values, F.lit(0)).isNotNull()
    return found.getField(_BROKEN).isNull() & is_one


def field_of(found: Column, name: str) -> Column:
    """Return a field of the first object that was `parsed`."""
    return F.get(found.getField(_VALUES), F.lit(0)).getField(name)


def may_close_the_array(text: Column) -> Column:
    """Tell whether text has a bracket that could close the array that it is parsed in; few have."""
    return F.contains(text, F.lit("]"))


def closes_the_array(text: Column) -> Column:
    """Tell whether text closes the array that it is parsed in.

    What stands behind a value is then a bracket, or a comma and a value that is no name; neither
    can follow a value in an object.
    """
    in_object = F.concat(F.lit(f'{{"{_VALUES}":'), text, F.lit("}"))
    # A field of type STRING takes any value, and all others are skipped.
    schema = f"{_VALUES} STRUCT<{_VALUES}: STRING>, {_BROKEN} STRING"
    broken = F.from_json(in_object, schema, _OPTIONS).getField(_BROKEN)
    return may_close_the_array(text) & broken.isNotNull()


def with_numbers_quoted(text: Column) -> Column:
    """Return JSON text with its numbers as texts, which Spark keeps as they were written."""
    return F.regexp_replace(text, _NUMBER, '$1"$2"')


def may_have_surrogates(text: Column) -> Column:
    """Tell whether text may have escapes of surrogates; few have escapes by number at all."""
    surrogate = F.contains(text, F.lit(r"\ud")) | F.contains(text, F.lit(r"\uD"))
    return F.contains(text, F.lit(r"\u")) & surrogate


def unpaired_surrogate(text: Column) -> Column:
    r"""Return the first escape in JSON text that is half of a surrogate pair; "" if none is.

    It is no character, and Spark makes a question mark of it: `\ud800` and `\ud801` would be one.
    """
    escapes = F.replace(text, F.lit("\\\\"), F.lit(" "))  # those that are no escaped backslash
    return F.regexp_extract(F.regexp_replace(escapes, _PAIR, " "), _SURROGATE, 0)


# The types that `schema_of_variant` gives for good values; a number may be a DECIMAL too.
INEXACT_TYPES = ("DOUBLE", "FLOAT")
VARIANT_TYPES = {
    FieldType.TEXT: ("STRING",),
    FieldType.FLAG: ("BOOLEAN",),
    FieldType.NUMBER: ("BIGINT", *INEXACT_TYPES),
}
# What is no whole number of 64 bits is no plain number: a DOUBLE could be a rounded one.
PLAIN_TYPES = {FieldType.TEXT: "STRING", FieldType.FLAG: "BOOLEAN", FieldType.NUMBER: "BIGINT"}


def decoded(raw: DataFrame, fields: tuple[Field, ...], passed: tuple[str, ...] = ()) -> DataFrame:
    """Return raw records as rows of a history: key (STRING), kind, reason, fields; and `passed`.

    `raw` is as kafka_source.read_ranges returns it; `passed` are other columns of it to keep. Only
    rejected records have a reason, raw_key and headers.
    """
    rejected = F.col("reason").isNotNull()
    parsed = _parsed(raw, fields, passed).withColumn("reason", _reason(fields))
    kind = kind_of(F.when(F.col("value").isNull(), RecordKind.TOMBSTONE.value))
    return parsed.select(
        *(valid_key().alias("key"), "partition", "offset", "timestamp", "value"),
        *(kind.alias("kind"), "reason"),
        *map(F.col, passed),
        *(F.when(rejected, F.col(name)).alias(name) for name in ("raw_key", "headers")),
        *_columns(fields),
    )


def valid_key() -> Column:
    """Return the key of raw records; null if it is no text."""
    return F.when(F.is_valid_utf8(_key()), _key())


def kind_of(other: Column) -> Column:
    """Return the kind of a record: what it is other than rejected, or an upsert."""
    rejected = F.when(F.col("reason").isNotNull(), RecordKind.REJECTED.value)
    return F.coalesce(rejected, other, F.lit(RecordKind.UPSERT.value))


# Each takes hundreds of calls of the JVM, and a run decodes several frames.
@cache
def _columns(fields: tuple[Field, ...]) -> tuple[Column, ...]:
    return tuple(
        F.when(F.col("is_plain"), F.col(f"plain_{field.column}"))
        .when(F.col("reason").isNull(), column_value(field, _found(field)))
        .alias(field.column)
        for field in fields
    )


def _parsed(raw: DataFrame, fields: tuple[Field, ...], passed: tuple[str, ...]) -> DataFrame:
    """Parse all values in one projection: Spark cannot fuse a projection that parses with others.

    Each value is parsed once, since Spark evaluates equal expressions of a projection once.
    """
    raw = raw.withColumnRenamed("key", "raw_key")
    return raw.select(
        *("raw_key", "partition", "offset", "timestamp", "value", "headers"),
        *passed,
        *_parsed_columns(fields),
    )


@cache
def _parsed_columns(fields: tuple[Field, ...]) -> tuple[Column, ...]:
    plain = parsed(_text(), _schema(fields, PLAIN_TYPES))
    is_plain = F.coalesce(_is_plain(fields, plain), F.lit(False))
    variants = parsed(_text(), _schema(fields, dict.fromkeys(FieldType, "VARIANT")))
    return (
        is_plain.alias("is_plain"),
        *(
            field_of(plain, field.name).cast(field.column_type).alias(f"plain_{field.column}")
            for field in fields
        ),
        F.when(~is_plain, variants).alias("json"),
        F.when(~is_plain, closes_the_array(_text())).alias("closes_the_array"),
    )


# Expressions and not columns: a column of the same bytes would copy every record at every stage.
def _key() -> Column:
    return F.col("raw_key").cast("string")


def _text() -> Column:
    return F.col("value").cast("string")


def _schema(fields: tuple[Field, ...], types: Mapping[FieldType, str]) -> str:
    return f"STRUCT<{','.join(f'{field.name}:{types[field.type]}' for field in fields)}>"


def _is_plain(fields: tuple[Field, ...], plain: Column) -> Column:
    """Tell which records are good beyond doubt; null means no."""
    is_plain = F.is_valid_utf8(_key()) & (F.length(_key()) > 0) & F.is_valid_utf8(_text())
    is_plain &= is_one_object(plain) & ~may_close_the_array(_text()) & ~may_have_surrogates(_text())
    if has_id_as_key(fields):
        is_plain &= ~_is_blank(_key())
    for field in fields:
        value = field_of(plain, field.name)
        is_plain &= _was_text(value) if field.type is FieldType.TEXT else value.isNotNull()
    return is_plain


def _was_text(value: Column) -> Column:
    """Tell whether a text cannot have been a number, a flag, an object or an array."""
    is_letter = value.between("A", "[") | value.between("a", "{")
    return is_letter & ~value.isin("[", "{", "true", "false")


class Found(NamedTuple):
    """What a value has of a field: a variant, its text if a number was written, and its JSON."""

    value: Column
    written: Column
    json: Column


def _found(field: Field) -> Found:
    """Return what is parsed of a field; if it is missing, the first that has its name otherwise."""
    names = F.filter(F.json_object_keys(_text()), lambda name: F.lower(name) == field.name.lower())
    like = F.concat(F.get(names, F.lit(0)), F.lit(f": did you mean {field.name}?"))
    type_ = f"STRUCT<{field.name}:STRING>"
    written = field_of(parsed(with_numbers_quoted(_text()), type_), field.name)
    value = field_of(F.col("json"), field.name)
    return Found(value, written, F.coalesce(F.to_json(value), like))


def column_value(field: Field, found: Found) -> Column:
    """Return the value of a good field; a number that no type holds exactly as it was written."""
    if field.type is FieldType.TEXT:
        return found.written
    is_inexact = F.schema_of_variant(found.value).isin(*INEXACT_TYPES)
    exact = found.value.try_cast(field.column_type)
    return F.when(is_inexact, found.written.try_cast(field.column_type)).otherwise(exact)


@cache
def _reason(fields: tuple[Field, ...]) -> Column:
    is_object = is_one_object(F.col("json")) & ~F.col("closes_the_array")
    reason = key_reason(F.when(F.col("is_plain"), None), fields).when(F.col("value").isNull(), None)
    reason = broken_text(reason, _text(), is_object, "one JSON object")
    return field_reason(reason, {field: _found(field) for field in fields})


def key_reason(reason: Column, fields: tuple[Field, ...]) -> Column:
    """Return a reason, else why the key of a raw record is none."""
    return (
        reason.when(F.col("raw_key").isNull(), "expected a key, found none")
        .when(~F.is_valid_utf8(_key()), "expected a key in UTF-8, found other bytes")
        .when(F.length(_key()) == 0, "expected a key, found an empty one")
        .when(
            F.lit(has_id_as_key(fields)) & _is_blank(_key()),
            "expected a non-blank key, found only blanks",
        )
    )


def field_reason(reason: Column, fields: Mapping[Field, Found]) -> Column:
    """Return a reason, else why a field is not what it has to be."""
    for field, found in fields.items():
        said, is_wrong = F.coalesce(found.json, F.lit("nothing")), _is_wrong(field, found.value)
        reason = reason.when(is_wrong, _expected(f"{field.expected} for {field.name}", said))
        if field.is_id:
            expected = _expected(f"{NOT_BLANK} for {field.name}", said)
            reason = reason.when(_is_blank(column_value(field, found)), expected)
    return reason


def broken_text(reason: Column, text: Column, is_right: Column, expected: str) -> Column:
    """Return a reason, else why text is no JSON, or not what is right."""
    surrogate = unpaired_surrogate(text)
    return (
        reason.when(~F.is_valid_utf8(text), "expected a value in UTF-8, found other bytes")
        .when(~F.coalesce(is_right, F.lit(False)), _expected(expected, text))
        .when(
            may_have_surrogates(text) & (surrogate != ""),
            _expected("surrogates in pairs", surrogate),
        )
    )


def _is_blank(text: Column) -> Column:
    return F.trim(text, F.lit(BLANKS)) == ""


def _is_wrong(field: Field, value: Column) -> Column:
    found = F.schema_of_variant(value)  # null if it is missing, VOID if it is null
    fits = found.isin(*VARIANT_TYPES[field.type])
    if field.type is FieldType.NUMBER:
        fits |= found.startswith("DECIMAL(")
    missing = F.lit(False) if field.required else found.isNull() | (found == "VOID")
    return ~F.coalesce(fits, F.lit(False)) & ~missing


def _expected(expected: str, found: Column) -> Column:
    return F.concat(F.lit(f"expected {expected}, found "), F.left(found, F.lit(MAX_QUOTED)))
