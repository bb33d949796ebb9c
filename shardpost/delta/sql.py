"""Values as literals of SQL that Spark and DataFusion both read."""

from datetime import UTC, datetime

from shardpost.errors import UsageError

# DataFusion has time literals as nanoseconds in 64 bits.
MIN_TIME = datetime(1678, 1, 1, tzinfo=UTC)
MAX_TIME = datetime(2262, 1, 1, tzinfo=UTC)  # exclusive


def text_literal(value: str) -> str:
    """Return a string as a SQL literal; in hexadecimal where the engines differ in quoting."""
    if value.isprintable() and not set("'\\") & set(value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def time_literal(at: datetime) -> str:
    """Return an aware time as a SQL literal, in microseconds; UsageError outside 1678 to 2261."""
    if not MIN_TIME <= at < MAX_TIME:
        raise UsageError(f"as of {at.isoformat()}: expected a time from 1678 to 2261")
    return f"TIMESTAMP '{at.astimezone(UTC).isoformat(sep=' ', timespec='microseconds')}'"
