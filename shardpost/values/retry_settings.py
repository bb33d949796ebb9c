"""When letters are retried, how often and where: the settings, per origin topic."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

_ENTRY = re.compile(r"\s*([A-Za-z0-9._-]+)\s*:\s*(.*?)\s*")
# Least and most, as of the settings for all origins.
_NUMBERS = {"first_delay": (0, 10**9), "factor": (1, 10**9), "cap": (0, 10**9), "jitter": (0, 1)}
_MOST_ATTEMPTS = 1000


@dataclass(frozen=True)
class RetrySettings:
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


@dataclass(frozen=True)
class RetryRules:
    """Settings per origin topic, and the classes of errors that a retry cannot mend.

    `common_topic` is where retries go of origins that have no topic of their own for them.
    """

    default: RetrySettings = field(default_factory=RetrySettings)
    of_origin: Mapping[str, RetrySettings] = field(default_factory=dict)
    fatal: frozenset[str] = frozenset()
    common_topic: str = "retries"

    def of(self, origin_topic: str) -> RetrySettings:
        """Return the settings of an origin."""
        return self.of_origin.get(origin_topic, self.default)

    def retry_topic(self, origin_topic: str) -> str:
        """Return where retries of an origin go."""
        return self.of(origin_topic).topic or self.common_topic

    @property
    def retry_topics(self) -> frozenset[str]:
        """All topics that retries go to."""
        return frozenset({self.common_topic, *map(self.retry_topic, self.of_origin)})

    @cached_property
    def retry_only_topics(self) -> frozenset[str]:
        """The retry topics that are no origin themselves.

        A letter of one of them is of a retry that did not say where it came from. A topic that has
        a retry topic of its own is an origin, even if retries come to it.
        """
        return frozenset(name for name in self.retry_topics if not self.of(name).topic)


def parse_origins(text: str, default: RetrySettings) -> dict[str, RetrySettings]:
    """Read `positions: attempts=3 topic=positions-retries; clients: first_delay=5`.

    ValueError for anything else. What an origin does not name is as in `default`.
    """
    found: dict[str, RetrySettings] = {}
    for entry in filter(str.strip, text.split(";")):
        match = _ENTRY.fullmatch(entry)
        if not match:
            raise ValueError(f"expected `origin: name=value …`, found {entry.strip()!r}")
        if match[1] in found:
            raise ValueError(f"expected each origin once, found {match[1]} again")
        found[match[1]] = replace(default, **dict(map(_pair, match[2].split())))
    return found


def find_cycle(origins: Mapping[str, RetrySettings]) -> list[str]:
    """Return a cycle of origins, each of whose retries go to the next; empty if there is none.

    Retries that go back to their own origin are no cycle: there, a consumer recognises them.
    """
    leads_to = {name: {one.topic} for name, one in origins.items() if one.topic not in (None, name)}
    try:
        TopologicalSorter(leads_to).prepare()
    except CycleError as error:
        return [*reversed(error.args[1])]
    return []


def split_names(text: str) -> frozenset[str]:
    """Return the names in a comma-separated list."""
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
