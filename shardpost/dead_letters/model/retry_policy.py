"""The retry policy: what a sweep does with one letter, from its attempt, its error and its age.

Exhausted, fatal and malformed letters, and those of unknown origin, are parked; the others are
retried once their backoff (backoff.py) is over.
"""

from datetime import datetime
from typing import NamedTuple

from shardpost.dead_letters.model.backoff import due
from shardpost.dead_letters.model.fingerprints import NO_CLASS, error_class
from shardpost.dead_letters.model.letter_format import MALFORMED, Letter, Malformed
from shardpost.dead_letters.model.outcome import Outcome
from shardpost.retry_settings import RetryRules


class RetryDecision(NamedTuple):
    """WAIT with the time at which the letter is due, RETRY, or PARK with the reason."""

    outcome: Outcome
    due: datetime | None = None
    reason: str | None = None


RETRY = RetryDecision(Outcome.RETRY)


def decide(letter: Letter | Malformed, now: datetime, rules: RetryRules) -> RetryDecision:
    """Decide what becomes of a letter now; never RETRY before it is due."""
    if isinstance(letter, Malformed):
        return park(MALFORMED + letter.reason)
    retries = rules.of(letter.origin_topic)
    if letter.origin_topic in rules.retry_only_topics:
        return park(unknown_origin(letter))
    if letter.attempt >= retries.attempts:
        return park(f"exhausted: attempt {letter.attempt} of {retries.attempts} failed")
    if rules.fatal and _is_fatal(letter.error, rules):
        return park(f"fatal: {error_class(letter.error)} is not retried")
    due_at = due(retries, letter)
    return RETRY if due_at <= now else RetryDecision(Outcome.WAIT, due_at)


def park(reason: str) -> RetryDecision:
    """Return the decision to park a letter."""
    return RetryDecision(Outcome.PARK, reason=reason)


def unknown_origin(letter: Letter) -> str:
    """Return why a letter of a retry topic is not retried: no consumer knows it for its own."""
    return (
        "unknown origin: expected the topic of the original record, found the retry topic"
        f" {letter.origin_topic}"
    )


def _is_fatal(error: str, rules: RetryRules) -> bool:
    """Compare the class with and without its module; first see whether a name is there at all."""
    for name in rules.fatal:
        if name in error or name == NO_CLASS:
            return error_class(error) in rules.fatal or error.partition(":")[0] in rules.fatal
    return False
