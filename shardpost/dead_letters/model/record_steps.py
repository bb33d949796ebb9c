"""The step in a letter's life that a record of dead-letters or parking-lot is.

spark/letters_table_rows.py makes the same of records in the JVM; a test holds one against the
other.
"""

from contextlib import suppress
from dataclasses import replace

from shardpost.dead_letters.model.backoff import due
from shardpost.dead_letters.model.fingerprints import fingerprint
from shardpost.dead_letters.model.letter_format import ERROR, ORIGIN_TOPIC, Letter, header_text
from shardpost.dead_letters.model.letter_history import Step
from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.letter_parser import attempt_of, header_bytes, parse_record
from shardpost.dead_letters.model.letter_state import LetterState
from shardpost.dead_letters.model.stored_names import parking_key
from shardpost.dead_letters.model.transition_records import NAME, STATE
from shardpost.instants import instant_of
from shardpost.kafka.records import Record
from shardpost.retry_settings import RetryRules


def step_of(record: Record, rules: RetryRules, *, store_partitions: int | None) -> Step | None:
    """Return the step that a record is; None for a tombstone that is no step of its own.

    It is one of the store, which has so many partitions; of the parking lot if that is None.

    A letter that was parked left the store by a tombstone too: its step is that of the parking lot.
    """
    is_store = store_partitions is not None
    if record.value is None:
        return _tombstone_step(record, is_store=is_store)
    letter = parse_record(record)
    headers = dict(record.headers)
    error = _utf8(headers.get(ERROR))
    name = key = name_of(record.key)
    if store_partitions is not None:
        name = name_of(parking_key(letter, record, store_partitions))
    step = Step(
        name,
        LetterState.WAITING if is_store else LetterState.PARKED,
        attempt_of(record.headers, require_id=False),
        instant_of(record.timestamp),
        *record.coordinates,
        origin_topic=_utf8(headers.get(ORIGIN_TOPIC)),
        error=error,
        fingerprint=None if error is None else fingerprint(error),
        size=len(record.value),
        key=None if key == name else key,
    )
    if not isinstance(letter, Letter):
        return step
    return replace(
        step,
        origin_partition=letter.origin_partition,
        origin_offset=letter.origin_offset,
        origin_key=letter.origin_key,
        failed_at=letter.failed_at,
        due=due(rules.of(letter.origin_topic), letter) if is_store else None,
    )


def _tombstone_step(record: Record, *, is_store: bool) -> Step | None:
    attempt: int | None
    headers = dict(record.headers)
    name = key = name_of(record.key)
    try:
        state = LetterState(header_text(headers.get(STATE)))
    except ValueError:  # it was written by hand
        state, attempt = LetterState.DISCARDED, None
    else:
        if state is LetterState.DROPPED or (is_store and state is LetterState.PARKED):
            return None
        attempt = attempt_of(record.headers, require_id=False)
        name = name_of(header_bytes(headers.get(NAME)) or record.key)
    at = instant_of(record.timestamp)
    own_key = None if key == name else key
    return Step(name, state, attempt, at, *record.coordinates, key=own_key)


def _utf8(raw: str | bytes | None) -> str | None:
    """Return a header as text; None where it is not UTF-8."""
    with suppress(UnicodeDecodeError):
        return raw.decode() if isinstance(raw, bytes) else raw
    return None
