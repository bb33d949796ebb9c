"""The letters of a partition against dictionaries and sorting."""

import resource
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given, strategies

from shardpost.dead_letters import stored_letters
from shardpost.dead_letters.model.letter_format import Letter, LetterState
from shardpost.dead_letters.model.letters import letter_headers
from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.transition_records import tombstone
from shardpost.dead_letters.stored_letters import (
    NO_FACTS,
    NONE,
    Facts,
    KeyFold,
    LettersNow,
    Standing,
)
from shardpost.dead_letters.sweep import in_origin_order
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.records import Header, Record, TopicPartition, batches, size_of
from shardpost.values.retry_settings import RetryRules
from tests.support.installed import installed
from tests.support.letter_world import empty_letters
from tests.support.memory_kafka import memory_kafka

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RULES = RetryRules(fatal=frozenset({"SchemaError"}))
ONE_LONG, ANOTHER = b"one " * 20, b"one " * 20 + b"more"


class Content(NamedTuple):
    """What a record says; a tombstone's `origin_offset` is how many offsets it does not cover."""

    kind: str
    key: bytes
    attempt: int
    origin: bytes | None
    origin_offset: int
    error: str
    is_due: bool


CONTENTS = strategies.builds(
    Content,
    strategies.sampled_from(("letter", "letter", "tombstone", "junk")),
    strategies.sampled_from((b"a", b"b", b"c", b"d", b"e", ONE_LONG, ANOTHER)),
    strategies.integers(0, 2),
    strategies.sampled_from((b"x", b"y", None)),
    strategies.integers(0, 9),
    strategies.sampled_from(("KeyError: x", "OSError: gone", "SchemaError: no")),
    strategies.booleans(),
)


def record(content: Content, offset: int) -> Record:
    if content.kind == "junk":
        return as_read(content.key, b"v", [], offset)
    if content.kind == "tombstone":
        of = as_read(content.key, b"v", [], max(0, offset - content.origin_offset))
        gone = tombstone(of, content.attempt or None, LetterState.RETRIED, NOW)
        return as_read(content.key, None, gone.headers, offset)
    failed_at = NOW - timedelta(days=content.is_due)
    origin = ("positions", 0, content.origin_offset, content.origin)
    letter = Letter(
        content.key.decode(), *origin, content.attempt, content.error, failed_at, is_null=False
    )
    headers: list[Header] = [("error", content.error), ("failed-at", failed_at.isoformat())]
    return as_read(content.key, b"v", [*letter_headers(letter), *headers], offset)


def as_read(key: bytes, value: bytes | None, headers: list[Header], offset: int) -> Record:
    raw = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers]
    return Record(key, value, raw, int(NOW.timestamp() * 1000), "dead-letters", 0, offset)


class Folded(NamedTuple):
    """What becomes of a letter, and which attempt of it was resolved."""

    outcome: Outcome
    resolved_attempt: int


def outcome(content: Content) -> Outcome:
    """Return what becomes of a letter of which there is one record."""
    if content.kind == "junk" or content.error.startswith("SchemaError"):
        return Outcome.PARK
    if not content.is_due:
        return Outcome.WAIT
    return Outcome.RETRY


def fold(history: list[Content]) -> dict[int, Folded]:
    """Return what becomes of what is live, by offset."""
    folds: dict[bytes, KeyFold] = {}
    malformed: dict[int, bytes] = {}
    for offset, content in enumerate(history):
        one_fold = folds.setdefault(content.key, KeyFold())
        until = max(0, offset - content.origin_offset)
        if content.kind == "letter":
            one_fold.add_letter(offset, content.attempt, NO_FACTS)
        elif content.kind == "junk":
            malformed[offset] = content.key
            one_fold.add_of_malformed()
        elif content.attempt == 0 and until < offset:
            if malformed.get(until) == content.key:
                del malformed[until]
            one_fold.add_of_malformed()
        else:
            one_fold.add_tombstone(content.attempt or NONE, until)
            if until == offset:  # by hand
                malformed = {n: key for n, key in malformed.items() if key != content.key}
    found = {
        one_fold.offset: Folded(
            now(one_fold, outcome(history[one_fold.offset])),
            one_fold.resolved_attempt,
        )
        for one_fold in folds.values()
        if one_fold.offset != NONE
    }
    return found | {offset: Folded(Outcome.PARK, NONE) for offset in malformed}


def now(fold: KeyFold, alone: Outcome) -> Outcome:
    """Return what becomes of the live letter of a key, by what would become of it alone."""
    if fold.standing == Standing.RESOLVED:
        return Outcome.DROP
    is_covered = fold.standing == Standing.COVERED and alone is Outcome.WAIT
    return Outcome.RESTORE if is_covered else alone


def order(history: list[Content], folds: dict[int, Folded]) -> list[int]:
    """Return the offsets of what goes: each when all is read that has to go before it."""
    going = [offset for offset in sorted(folds) if folds[offset].outcome is not Outcome.WAIT]

    def before(offset: int) -> list[int]:
        """Return those of the same original key up to its place."""
        content = history[offset]
        return [
            other
            for other in going
            if folds[other].outcome in (Outcome.RETRY, Outcome.PARK)
            and (history[other].kind, history[other].origin) == ("letter", content.origin)
            and (history[other].origin_offset, other) <= (content.origin_offset, offset)
        ]

    def turn(offset: int) -> tuple[int, bool, int, int]:
        content, is_sent = history[offset], folds[offset].outcome in (Outcome.RETRY, Outcome.PARK)
        is_ordered = is_sent and content.kind == "letter" and content.origin is not None
        release = max(before(offset)) if is_ordered else offset
        return release, release > offset, content.origin_offset, offset

    return sorted(going, key=turn)


@given(strategies.lists(CONTENTS, max_size=60))
def test_it_selects_and_orders_as_dictionaries_and_sorting_do(history: list[Content]) -> None:
    records = [record(content, offset) for offset, content in enumerate(history)]
    found = filled(records)
    folds = fold(history)
    assert found.counts() == Counter(one_fold.outcome for one_fold in folds.values())
    letters = [(records[selected.offset], selected) for selected in found.selected()]
    gone = list(in_origin_order(letters, found.delayed()))
    assert [one.offset for one, _ in gone] == order(history, folds)
    for one, selected in gone:
        one_fold = folds[one.offset]
        assert (one, selected.outcome) == (records[one.offset], one_fold.outcome)
        assert selected.resolved_attempt == (
            one_fold.resolved_attempt if one_fold.outcome is Outcome.DROP else None
        )


@given(strategies.lists(CONTENTS, max_size=60), strategies.sets(strategies.integers(0, 59)))
def test_the_order_holds_also_when_the_cleaner_takes_letters_between_the_readings(
    history: list[Content], taken: set[int]
) -> None:
    records = [record(content, offset) for offset, content in enumerate(history)]
    found = filled(records)
    selected = [one for one in found.selected() if one.offset not in taken]
    letters = [(records[one.offset], one) for one in selected]
    gone = [one.offset for one, _ in in_origin_order(letters, found.delayed())]
    assert sorted(gone) == [one.offset for one in selected]
    sent = {one.offset for one in selected if one.outcome in (Outcome.RETRY, Outcome.PARK)}
    for origin in (b"x", b"y"):
        of_it = [n for n in gone if n in sent and history[n].origin == origin]
        places = [history[n].origin_offset for n in of_it if history[n].kind == "letter"]
        assert places == sorted(places)


def filled(records: list[Record]) -> LettersNow:
    """Return the letters of records that were folded in parts."""
    database = empty_letters()
    for first in range(0, len(records), 7):
        stored_letters.fold(RULES, database, records[first : first + 7])
    found = LettersNow(database, NOW)
    found.select()
    return found


def test_a_batch_ends_also_with_many_bytes_of_headers() -> None:
    large = Record(b"k", b"v", [("h", bytes(1 << 20))], 0, "dead-letters", 0, 0)
    assert [len(batch) for batch in batches([large] * 40, 1_000, size_of)] == [15, 15, 10]


def test_where_no_file_can_be_written_it_says_what_to_do() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with memory_kafka() as kafka:
        kafka.broker.create_topic("dead-letters", 1, {})
        own = installed(kafka.settings)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(ShardpostError, match=r"^dead-letters\[0\]: expected room for"):
                open_letters(own)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def open_letters(own: Installation) -> None:
    place = TopicPartition("dead-letters", 0)
    with stored_letters.projections_of(own, [place]).open(place):
        pass


def test_a_tombstone_leaves_the_letter_that_came_after_what_it_is_of() -> None:
    """A failure may be reported again after the letter was read and before it was resolved."""
    fold = KeyFold()
    fold.add_letter(5, 2, Facts(due=1))
    fold.add_tombstone(1, until=4)
    assert (fold.offset, fold.facts.due) == (5, 1)
    fold.add_tombstone(2, until=4)
    assert (fold.offset, fold.standing, fold.resolved_attempt) == (5, Standing.RESOLVED, 2)
    fold.add_tombstone(2, until=5)
    assert fold.offset == NONE
