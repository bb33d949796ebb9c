"""Backoff: when a letter is retried.

The delay begins when the store took the letter, by the broker's clock: that of a consumer may be
slow. Where the broker does not stamp records it begins at the failure, as its consumer says.

The delay grows exponentially up to a cap. To each comes up to `jitter` of itself, always the same
for a letter and attempt, so that what failed together does not come back together.
The same as a Spark column, for the table `dead_letters`, is spark/letters_table_rows.py; a test
compares the two.
"""

import math
from datetime import UTC, datetime, timedelta
from zlib import crc32

from shardpost.dead_letters.model.letter_format import Letter
from shardpost.retry_settings import RetrySettings


def due(retries: RetrySettings, letter: Letter) -> datetime:
    """Return when a letter may be retried; the delay is in whole milliseconds, no less."""
    milliseconds = math.ceil(delay(retries, letter.id, letter.attempt) * 1000)
    try:
        return letter.delayed_from + timedelta(milliseconds=milliseconds)
    except OverflowError:  # that is in the year 9999, as some clock says
        return datetime.max.replace(tzinfo=UTC)


def delay(retries: RetrySettings, letter_id: str, attempt: int) -> float:
    """Return the seconds between an attempt that failed and the next one."""
    try:
        delay_without_jitter = min(retries.cap, retries.first_delay * retries.factor**attempt)
    except OverflowError:
        delay_without_jitter = retries.cap
    return delay_without_jitter * (1 + retries.jitter * _fraction(letter_id, attempt))


def _fraction(letter_id: str, attempt: int) -> float:
    return crc32(f"{letter_id}/{attempt}".encode()) / 2**32
