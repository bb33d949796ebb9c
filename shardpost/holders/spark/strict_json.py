"""Parsing JSON strictly with Spark's `from_json`, which forgives much if it is not asked otherwise.

A value is parsed as the only element of an array, since Spark ignores whatever follows a JSON
value. The array is the field of an object, for two reasons: only of an object can `from_json` say
in a column (BROKEN) that something in it could not be parsed, where it would otherwise return what
it made of the rest (`spark.sql.json.enablePartialResults` is on by default); and of text that
begins with `{"` nobody guesses an encoding other than UTF-8.

Of a field that is given twice the last counts. What RFC 8259 does not have is refused: comments,
single quotes, leading zeros, `NaN`, escapes of any character, control characters in texts.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

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


def parsed(text: Column, fields: str) -> Column:
    """Return text parsed as objects with those fields, `a:STRING,b:VARIANT`; for what follows."""
    array = F.concat(F.lit(f'{{"{_VALUES}":['), text, F.lit("]}"))
    schema = f"{_VALUES} ARRAY<STRUCT<{fields}>>, {_BROKEN} STRING"
    return F.from_json(array, schema, _OPTIONS)


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
