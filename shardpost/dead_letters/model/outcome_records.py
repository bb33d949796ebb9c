"""The records by which a sweep carries out what it does with a letter."""

from collections.abc import Sequence
from datetime import datetime

from shardpost.dead_letters.model import transition_records
from shardpost.dead_letters.model.letter_format import Letter
from shardpost.dead_letters.model.letter_parser import parse_record
from shardpost.dead_letters.model.letter_state import LetterState
from shardpost.dead_letters.model.outcome import Outcome, SelectedLetter
from shardpost.dead_letters.model.retry_policy import decide
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.kafka.records import Outgoing, Record
from shardpost.retry_settings import RetryRules

# Why a letter is parked that is due, if its retry topic does not accept it.
TOO_LARGE = "too large for its retry topic, with its original key"


def outcome_records(
    record: Record, selected: SelectedLetter, rules: RetryRules, routes: Routes, now: datetime
) -> Sequence[Outgoing]:
    """Return the records that are to be written, in one transaction."""
    outcome = selected.outcome
    if outcome is Outcome.DROP:
        attempt = selected.resolved_attempt
        return [transition_records.tombstone(record, attempt, LetterState.DROPPED, now)]
    if outcome is Outcome.RESTORE:
        return [transition_records.restored(record)]
    letter = parse_record(record)
    if outcome is Outcome.RETRY and isinstance(letter, Letter):
        topic = rules.retry_topic(letter.origin_topic)
        retry = transition_records.retry(letter, record, topic, routes)
        gone = transition_records.removed(letter, record, LetterState.RETRIED, now, routes)
        return [retry, gone]
    reason = decide(letter, now, rules).reason or TOO_LARGE
    parked = transition_records.parked(letter, record, reason, routes)
    gone = transition_records.removed(letter, record, LetterState.PARKED, now, routes)
    return [parked, gone]
