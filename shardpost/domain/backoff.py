"""When a letter is tried again, and how often: per origin topic."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from zlib import crc32

from shardpost.domain.letters import Letter

_ENTRY = re.compile(r"\s*([A-Za-z0-9._-]+)\s*:\s*(.*?)\s*")
# Least and most, as of the settings for all origins.
_NUMBERS = {"first_delay": (0, 10**9), "factor": (1, 10**9), "cap": (0, 10**9), "jitter": (0, 1)}
_MOST_ATTEMPTS = 1000


@dataclass(frozen=True)
class Backoff:
    """Delays in seconds: `first_delay`, each further one `factor` times longer, at most `cap`.

    To each comes up to `jitter` of itself, always the same for a letter and attempt, so that what
    failed together does not come back together. After `attempts` retries a letter is exhausted.
    `topic` is where the retries go; None is the common topic.
    """

    first_delay: float = 60
    factor: float = 2
    cap: float = 86_400
    jitter: float = 0.1
    attempts: int = 8
    topic: str | None = None

    def delay(self, letter_id: str, attempt: int) -> float:
        """Return the seconds between the failure of an attempt and the next one."""
        try:
            plain = min(self.cap, self.first_delay * self.factor**attempt)
        except OverflowError:
            plain = self.cap
        return plain * (1 + self.jitter * _share(letter_id, attempt))

    def due(self, letter: Letter) -> datetime:
        """Return when a letter may be tried again; the delay is in whole milliseconds, no less."""
        delay = math.ceil(self.delay(letter.id, letter.attempt) * 1000)
        try:
            return letter.failed_at + timedelta(milliseconds=delay)
        except OverflowError:  # it failed in the year 9999, as its clock says
            return datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Rules:
    """Backoffs per origin topic, and the classes of errors that no retry can help.

    `common_topic` is where retries go of origins that have no topic of their own for them.
    """

    default: Backoff = field(default_factory=Backoff)
    of_origin: Mapping[str, Backoff] = field(default_factory=dict)
    fatal: frozenset[str] = frozenset()
    common_topic: str = "retries"

    def backoff(self, origin_topic: str) -> Backoff:
        """Return the backoff of an origin."""
        return self.of_origin.get(origin_topic, self.default)

    def retry_topic(self, origin_topic: str) -> str:
        """Return where retries of an origin go."""
        return self.backoff(origin_topic).topic or self.common_topic

    @property
    def retry_topics(self) -> frozenset[str]:
        """All topics that retries go to."""
        return frozenset({self.common_topic, *map(self.retry_topic, self.of_origin)})

    @cached_property
    def no_origins(self) -> frozenset[str]:
        """The retry topics that are no origin.

        A letter of one of them is of a retry that did not say where it came from. What has a topic
        for its own retries is an origin, even if retries come to it.
        """
        return frozenset(name for name in self.retry_topics if not self.backoff(name).topic)


def per_origin(text: str, default: Backoff) -> dict[str, Backoff]:
    """Read `positions: attempts=3 topic=positions-retries; clients: first_delay=5`.

    ValueError for anything else. What an origin does not name is as in `default`.
    """
    found: dict[str, Backoff] = {}
    for entry in filter(str.strip, text.split(";")):
        match = _ENTRY.fullmatch(entry)
        if not match:
            raise ValueError(f"expected `origin: name=value …`, found {entry.strip()!r}")
        if match[1] in found:
            raise ValueError(f"expected each origin once, found {match[1]} again")
        found[match[1]] = replace(default, **dict(map(_pair, match[2].split())))
    return found


def circle_of(origins: Mapping[str, Backoff]) -> list[str]:
    """Return a circle of origins whose retries are records of the next one; empty without any.

    Retries that go back to their own origin are none: there, a consumer knows its own.
    """
    leads_to = {origin: one.topic for origin, one in origins.items() if one.topic}
    for origin, topic in leads_to.items():
        passed, at = [origin], topic
        while at in leads_to and at not in passed:
            passed.append(at)
            at = leads_to[at]
        if at == origin and len(passed) > 1:
            return [*passed, origin]
    return []


def names(text: str) -> frozenset[str]:
    """Return the names in a list separated by commas."""
    return frozenset(filter(None, (name.strip() for name in text.split(","))))


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if name == "topic" and value:
        return name, value
    if name == "attempts" and value.isdecimal() and int(value) <= _MOST_ATTEMPTS:
        return name, int(value)
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        if least <= float(value) <= most:
            return name, float(value)
    bounds = (f"{name} ({least:,} to {most:,})" for name, (least, most) in _NUMBERS.items())
    wanted = ", ".join((*bounds, f"attempts (0 to {_MOST_ATTEMPTS:,})", "topic"))
    raise ValueError(f"expected one of {wanted}, found {text!r}")


def _share(letter_id: str, attempt: int) -> float:
    return crc32(f"{letter_id}/{attempt}".encode()) / 2**32
