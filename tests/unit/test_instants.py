"""Instants: what Kafka calls a timestamp is any 64 bits."""

from datetime import UTC, datetime

import pytest

from shardpost.instants import instant_of

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)


@pytest.mark.parametrize(
    ("timestamp_ms", "at"),
    [
        (1_790_000_000_001, datetime(2026, 9, 21, 14, 13, 20, 1000, UTC)),
        (0, FIRST),
        (-1, FIRST),
        (-(2**63), FIRST),
        (253_402_300_799_999, LAST),
        (253_402_300_800_000, LAST),
        (2**63 - 1, LAST),
    ],
)
def test_a_timestamp_that_no_calendar_has_becomes_the_nearest(
    timestamp_ms: int, at: datetime
) -> None:
    assert instant_of(timestamp_ms) == at
