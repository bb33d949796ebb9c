"""Sums over frames."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def totals(frame: DataFrame, *expressions: str) -> list[int]:
    """Return the sums of SQL expressions."""
    found = frame.agg(*map(_sum, expressions)).first()
    return [int(total) for total in found or ()]


def _sum(expression: str) -> Column:
    return F.coalesce(F.sum(F.expr(expression)), F.lit(0))
