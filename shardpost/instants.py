"""Instants as people write them: ISO 8601, UTC where no zone is given."""

from datetime import UTC, datetime

from shardpost.errors import UsageError


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
