"""What a sweep does with one letter."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from shardpost.dead_letters.model.backoff import due
from shardpost.dead_letters.model.fingerprints import NO_CLASS, error_class
from shardpost.dead_letters.model.letters import MALFORMED, Letter, Malformed
from shardpost.retry_settings import RetryRules


@dataclass(frozen=True)
class Retry:
    """The letter is due: it goes to the retry topic."""


class Wait(NamedTuple):
    """The letter is not due before then."""

    due: datetime


@dataclass(frozen=True)
class Park:
    """The letter is for a person."""

    reason: str


RetryDecision = Retry | Wait | Park


def decide(letter: Letter | Malformed, now: datetime, rules: RetryRules) -> RetryDecision:
    """Decide what becomes of a letter now; never `Retry` before it is due."""
    if isinstance(letter, Malformed):
        return Park(MALFORMED + letter.reason)
    retries = rules.of(letter.origin_topic)
    if letter.origin_topic in rules.no_origins:
        return Park(no_origin(letter))
    if letter.attempt >= retries.attempts:
        return Park(f"exhausted: attempt {letter.attempt} of {retries.attempts} failed")
    if rules.fatal and _is_fatal(letter.error, rules):
        return Park(f"fatal: {error_class(letter.error)} is not retried")
    due_at = due(retries, letter)
    return Retry() if due_at <= now else Wait(due_at)


def no_origin(letter: Letter) -> str:
    """Say why a letter of a retry topic is not sent back: nobody would take it for theirs."""
    return (
        "its origin is not known: expected the topic it came from first, found the retry topic"
        f" {letter.origin_topic}"
    )


def _is_fatal(error: str, rules: RetryRules) -> bool:
    """Compare the class with and without its module; first see whether a name is there at all."""
    for name in rules.fatal:
        if name in error or name == NO_CLASS:
            return error_class(error) in rules.fatal or error.partition(":")[0] in rules.fatal
    return False
