"""Instants: as people write them, ISO 8601, UTC where no zone is given; and as Kafka has them."""

from datetime import UTC, datetime, timedelta

from shardpost.errors import UsageError

# What a timestamp of Kafka is here, in milliseconds since 1970: any 64 bits can be one, -1 is none,
# and neither Python nor ISO 8601 has years after 9999.
EARLIEST_MS = 0
LATEST_MS = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_instant(text: str) -> datetime:
    """Return the instant in UTC; a date alone is its midnight. UsageError for anything else."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"time {text!r}: expected ISO 8601, as 2026-11-23, 2026-11-23T08:00 or"
            " 2026-11-23T08:00:00+01:00"
        ) from None


def instant_of(timestamp_ms: int) -> datetime:
    """Return a record's timestamp as an instant, the nearest from EARLIEST_MS to LATEST_MS."""
    return _EPOCH + timedelta(milliseconds=min(max(EARLIEST_MS, timestamp_ms), LATEST_MS))
