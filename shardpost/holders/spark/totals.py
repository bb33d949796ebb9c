"""Sums over frames."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def totals_and_files(frame: DataFrame, *expressions: str) -> tuple[list[int], list[str]]:
    """Return the sums of SQL expressions, and the distinct values of the column `old_file`."""
    found = frame.agg(F.collect_set("old_file"), *map(_sum, expressions)).first()
    files, *totals = found or ([],)
    return [int(total) for total in totals], files


def total_of(frame: DataFrame, expression: str) -> int:
    """Return the sum of a SQL expression."""
    found = frame.agg(_sum(expression)).first()
    return int(found[0]) if found else 0


def _sum(expression: str) -> Column:
    return F.coalesce(F.sum(F.expr(expression)), F.lit(0))
