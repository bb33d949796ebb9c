"""Which decoder made the rows of a history: an id that is another one after each change to it."""

import pkgutil
from hashlib import sha256

from pyspark.sql import SparkSession

# What a record becomes is said by these modules of `shardpost.holders`, and by Spark.
MODULES = (
    "model/fields.py",
    "model/record_kind.py",
    "spark/decoding.py",
    "spark/strict_json.py",
)


def decoder_with(spark: SparkSession, former: str | None) -> str | None:
    """Return the id of a history that `former` made, once rows are added; None if it is of two."""
    return former if former == decoder_id(spark) else None


def decoder_id(spark: SparkSession) -> str:
    """Return the id of the decoder as it is: of the text of its modules, and Spark's version.

    A change that changes no row, such as of a comment, gives another id too.
    """
    found = sha256(spark.version.encode())
    for path in MODULES:
        text = pkgutil.get_data("shardpost.holders", path)
        if text is None:
            raise FileNotFoundError(f"shardpost/holders/{path}: expected the text of a module")
        found.update(sha256(text).digest())
    return found.hexdigest()[:16]
