"""Dead letters, always the same ones, and the records by which a sweep deals with them."""

from collections.abc import Iterator
from datetime import datetime

from shardpost.dead_letters.model.letter_format import Letter, LetterState
from shardpost.dead_letters.model.letters import as_record, first_failure
from shardpost.dead_letters.model.transition_records import Routes, retry_record, tombstone
from shardpost.kafka.records import Outgoing, Record

PARTITIONS = 8
ERROR = "bench.DecodeError: expected a number for Amount, found '1,5'"


def letters(first: int, until: int, failed_at: datetime, store: str) -> Iterator[Outgoing]:
    """Yield letters with these numbers."""
    for number in range(first, until):
        record, letter = _letter(number, failed_at)
        yield as_record(letter, record, store, PARTITIONS)


def dealt_with(number: int, now: datetime, store: str, retries: str) -> tuple[Outgoing, Outgoing]:
    """Return the retry of a letter, and its tombstone."""
    record, letter = _letter(number, now)
    stored = as_record(letter, record, store, PARTITIONS)
    held = Record(stored.key, record.value, [], 0, store, stored.partition, 0)
    again = retry_record(letter, record, retries, Routes(store, "", {}))
    return again, tombstone(held, 0, LetterState.RETRIED, now)


def _letter(number: int, failed_at: datetime) -> tuple[Record, Letter]:
    key = b"%d" % number
    value = b'{"PositionId":"%d","Client":"client%d","Ticker":"AAPL","Amount":"1,5"}' % (
        number,
        number // 10,
    )
    record = Record(key, value, [], 0, "positions", number % PARTITIONS, number)
    return record, first_failure(record, ERROR, failed_at)
