"""The timestamp of a record as an instant."""

from datetime import UTC, datetime

_LAST_MS = 253_402_300_799_000  # the last second of the year 9999


def instant_of(timestamp_ms: int) -> datetime:
    """Return milliseconds since 1970 as an instant.

    What no calendar has becomes the nearest that it has: a producer may write any number.
    """
    return datetime.fromtimestamp(min(max(0, timestamp_ms), _LAST_MS) / 1000, UTC)
