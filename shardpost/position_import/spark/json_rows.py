"""The rows of JSON texts: objects one by one, or all in one array.

Numbers become texts before they are parsed, so that they stay as they were written: where Spark
reads a number as text itself, it first makes a floating-point number of it.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.spark import decoding

BROKEN = "broken"
_ROWS = "rows"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": BROKEN,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def json_rows(texts: DataFrame, names: Sequence[str], is_array: bool) -> DataFrame:
    """Return (names…, BROKEN), all STRING, of the objects in `text`, or in the array that it is.

    Of a text that is broken anywhere, one row that has it as BROKEN and nothing else.
    """
    fields = ", ".join(f"{_quoted(name)} STRING" for name in names)
    schema = f"{_ROWS} ARRAY<STRUCT<{fields}>>, {BROKEN} STRING"
    text = F.col("text")
    inner = F.regexp_replace(text, r"^\[|\]$", "") if is_array else text
    document = F.concat(F.lit(f'{{"{_ROWS}":['), decoding.with_numbers_quoted(inner), F.lit("]}"))
    parsed = texts.select("text", F.from_json(document, schema, _OPTIONS).alias("parsed"))
    rows = F.col("parsed").getField(_ROWS)
    is_good = F.col("parsed").getField(BROKEN).isNull() & rows.isNotNull()
    is_good &= decoding.unpaired_surrogate(text) == ""
    nothing = [F.lit(None).cast("string").alias(name) for name in names]
    broken = F.array(F.struct(*nothing, text.alias(BROKEN)))
    good = F.transform(rows, lambda row: _with_nothing_broken(row, names))
    return parsed.select(F.explode(F.when(is_good, good).otherwise(broken)).alias("row")).select(
        "row.*"
    )


def _with_nothing_broken(row: Column, names: Sequence[str]) -> Column:
    values = [row.getField(name).alias(name) for name in names]
    return F.struct(*values, F.lit(None).cast("string").alias(BROKEN))


def _quoted(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"
