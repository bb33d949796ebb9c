"""The order of position ids (holders/model/position_id_order.py) as Spark columns."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def order_of(position: Column) -> list[Column]:
    """Return the columns to sort by, before the id itself: kind, length, digits.

    All-digit ids come first, by number however long it is; the rest by code point.
    """
    is_number = position.rlike(r"\A[0-9]+\z")
    digits = F.when(is_number, F.ltrim(position, F.lit("0"))).otherwise("")
    return [
        F.when(is_number, 0).otherwise(1).alias("kind"),
        F.length(digits).alias("length"),
        digits.alias("digits"),
    ]
