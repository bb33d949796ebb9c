"""Dead letters: how many wait and are parked, for how long, and which are held."""

from collections import Counter
from datetime import datetime

from shardpost import tables
from shardpost.dead_letters.model.letter_format import OPEN, LetterState
from shardpost.dead_letters.model.letter_history import Step
from shardpost.settings import Settings
from shardpost.watch.model.found import Found
from shardpost.watch.model.rules import LETTERS_HELD, LETTERS_OVERDUE, LETTERS_PARKED


def look(settings: Settings, now: datetime) -> Found:
    """Measure the letters that are waiting or parked."""
    found = Found()
    letters = [step for step in tables.letters(settings, closed_since=now) if step.is_in_topic]
    for state in OPEN:
        steps = [step for step in letters if step.state is state]
        found.measure("letters", len(steps), state=str(state))
        if steps:
            oldest = min(step.at for step in steps)
            found.age("letter_age_seconds", oldest, now, state=str(state))
    due = [step for step in letters if step.due is not None and step.due <= now]
    held = _held(due, settings.retry_flood)
    found.measure("letters_held", sum(held.values()))
    for error, number in held.items():
        text = f"{number} due letters have the error {error} (SHARDPOST_RETRY_FLOOD)"
        found.conditions.append(LETTERS_HELD.broken(error, text))
    _overdue(found, settings, [step for step in due if step.fingerprint not in held], now)
    _parked(found, [step for step in letters if step.state is LetterState.PARKED])
    return found


def _held(due: list[Step], flood: int | None) -> dict[str, int]:
    """Return {fingerprint: due letters} of the errors that more letters have than are retried."""
    if flood is None:
        return {}
    counts = Counter(step.fingerprint or "" for step in due)
    return {error: number for error, number in sorted(counts.items()) if number > flood}


def _overdue(found: Found, settings: Settings, due: list[Step], now: datetime) -> None:
    times = [step.due for step in due if step.due is not None]
    seconds = found.age("letter_overdue_seconds", min(times, default=now), now)
    if seconds > settings.watch_letter_age:
        limit = f"{settings.watch_letter_age:g} s (SHARDPOST_WATCH_LETTER_AGE)"
        text = f"{len(due)} letters are due, one since {seconds:.0f} s: expected at most {limit}"
        found.conditions.append(LETTERS_OVERDUE.broken("", text))


def _parked(found: Found, parked: list[Step]) -> None:
    for origin, number in sorted(Counter(step.origin_topic or "" for step in parked).items()):
        text = f"{number} letters of {origin or 'an unknown topic'} are parked: expected none"
        found.conditions.append(LETTERS_PARKED.broken(origin, text))
