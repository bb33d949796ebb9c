"""A long history of letters of every kind: none is lost, none is sent twice, at any moment.

`pytest tests/broker/test_letter_history.py --letters 100000` takes as many as you like.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from shardpost.dead_letters.model.letter_format import ATTEMPT, FAILED_AT, ID
from shardpost.dead_letters.model.transition_records import STORED_KEY
from shardpost.kafka.records import Outgoing, Record
from shardpost.settings import Settings
from tests.support.letter_world import (
    at,
    committed,
    failed,
    header,
    live,
    original,
    put,
    ready_for_letters,
    sweep,
    total,
)

FAILING_AGAIN, MALFORMED = 0.3, 0.05
LARGE = 900_000
# What is wrong with a malformed letter: a header and its value, or no headers at all.
WRONG: list[tuple[str, str | bytes | None] | None] = [
    None,
    (ATTEMPT, "-1"),
    (ATTEMPT, str(10**40)),
    (ATTEMPT, b"\x00\x01"),
    (ATTEMPT, None),
    (FAILED_AT, "0001-01-01T00:00:00+00:00"),
    (FAILED_AT, "soon"),
    ("origin-partition", "first"),
    (ID, b"\xff\xfe"),
]


@dataclass
class History:
    """Letters that were put, and what a consumer of the retries has made of them."""

    settings: Settings
    draw: random.Random
    ids: set[str] = field(default_factory=set)
    processed: set[str] = field(default_factory=set)
    seen: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    read: dict[int, int] = field(default_factory=dict)

    def begin(self, count: int) -> None:
        letters = [self._letter(n) for n in range(count)]
        put(self.settings, letters)
        self.ids = {(letter.key or b"").decode() for letter in letters}

    def _letter(self, n: int) -> Outgoing:
        value: bytes | None = b"value %d" % n
        if n % 50 == 0:
            value = self.draw.choice([None, b"", b"\xff\xfe"])
        if n in (3, 30):
            value = b"x" * LARGE
        key = None if n % 40 == 0 else b"key %d" % (n % 100)
        letter = failed(self.settings, original(n, key, value))
        if self.draw.random() < MALFORMED:
            wrong = self.draw.choice(WRONG)
            headers = [] if wrong is None else [*letter.headers, wrong]
            return letter._replace(headers=headers)
        if n % 30 == 0:  # a clock that is a year ahead: it counts from the record's own time
            return letter._replace(headers=[*letter.headers, (FAILED_AT, "2027-11-21T12:00:00Z")])
        return letter

    def consume(self, seconds: float) -> None:
        """Read what is new in the retries; three in ten fail again, of these one in ten twice."""
        reports = []
        for retry in self._new():
            self.seen[header(retry, ID), header(retry, ATTEMPT)] += 1
            if self.draw.random() < FAILING_AGAIN:
                again = failed(self.settings, retry, when=at(seconds))
                reports += [again] * self.draw.choice([1] * 9 + [2])
            else:
                self.processed.add(header(retry, ID) or "")
        put(self.settings, reports)

    def _new(self) -> list[Record]:
        retries = committed(self.settings, self.settings.topic("retries"))
        found = [r for r in retries if r.offset >= self.read.get(r.partition, 0)]
        for record in found:
            self.read[record.partition] = record.offset + 1
        return found

    def check(self) -> dict[str, int]:
        """Hold every letter against where it is: in one place, each attempt once."""
        waiting = names(live(self.settings, self.settings.topic("dead-letters")))
        parked = names(live(self.settings, self.settings.topic("parking-lot")))
        assert set(self.seen.values()) <= {1}
        assert waiting | parked | self.processed == self.ids
        assert len(waiting) + len(parked) + len(self.processed) == len(self.ids)
        return {"waiting": len(waiting), "parked": len(parked), "processed": len(self.processed)}


def names(letters: dict[bytes | None, Record]) -> set[str]:
    """Return the keys that letters have in the store; malformed ones are parked under others."""
    return {header(one, STORED_KEY) or (key or b"").decode() for key, one in letters.items()}


@pytest.mark.timeout(3600)
def test_at_every_moment_each_letter_is_in_one_place(
    settings: Settings, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--letters")
    few = ready_for_letters(
        settings, partitions=1, retry_attempts=3, retry_batch=100, retry_jitter=0.3
    )
    history = History(few, random.Random(count))  # noqa: S311 - the same each time
    history.begin(count)
    assert history.check() == {"waiting": count, "parked": 0, "processed": 0}
    stood = {}
    for seconds in (65, 78, 30, 400, 5000, 20_000):  # once the clock goes back
        total(sweep(few, at(seconds)))
        history.consume(seconds)
        stood = history.check()
    assert stood["waiting"] == 0
    malformed = [
        record
        for record in live(few, few.topic("parking-lot")).values()
        if (header(record, "parked-reason") or "").startswith("malformed")
    ]
    assert 0.02 * count < len(malformed) < 0.09 * count
    assert stood["parked"] > len(malformed)
