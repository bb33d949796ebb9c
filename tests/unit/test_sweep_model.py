"""Random histories of failures, reports that come twice, and sweeps, against a plain model.

The clocks of consumers may be wrong, each report by another number of seconds. The broker's is not.
"""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings, strategies

from shardpost.dead_letters import stored_letters
from shardpost.dead_letters.model import letters
from shardpost.dead_letters.model.letters import as_record, failed_again, first_failure
from shardpost.dead_letters.model.retry_policy import Outcome, delay, jitter_of
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.dead_letters.stored_letters import LettersNow, fold
from shardpost.dead_letters.sweep import Sweep, in_origin_order
from shardpost.kafka.records import Outgoing, Record, partition_of
from shardpost.settings import Settings
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.letter_world import empty_letters

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = Settings(retry_attempts=2, retry_jitter=0.5, retry_batch=3)
ROUTES = Routes("dead-letters", "parking-lot", {"dead-letters": 2, "parking-lot": 1, "retries": 1})
PARTITIONS = (0, 1)
KEYS = (b"a", b"b", None)

ACTIONS = strategies.lists(
    strategies.one_of(
        strategies.tuples(strategies.just("fail"), strategies.integers(0, 9)),
        strategies.tuples(strategies.just("fail elsewhere"), strategies.integers(0, 9)),
        strategies.tuples(strategies.just("fail again"), strategies.integers(0, 9)),
        strategies.tuples(strategies.just("garbage"), strategies.integers(0, 9)),
        strategies.tuples(strategies.just("clock"), strategies.integers(-900, 900)),
        strategies.tuples(strategies.just("clean"), strategies.just(0)),
        strategies.tuples(strategies.just("sweep"), strategies.integers(0, 400)),
        strategies.tuples(strategies.just("sweep slowly"), strategies.integers(0, 400)),
        strategies.tuples(strategies.just("sweep dies"), strategies.integers(0, 9)),
    ),
    max_size=40,
)


class Failure(NamedTuple):
    """A letter at one attempt, in one partition of the store."""

    letter_id: str
    partition: int
    attempt: int


@dataclass
class World:
    """The partitions of the store, the retries, the parking lot, and a clock.

    `reports` has when each failure was reported: first and last. `garbage` are the values of all
    malformed letters, which differ. `folded` are the projections, and the last offset of each.
    """

    now: datetime = START
    clock_error: timedelta = timedelta(0)
    stores: dict[int, list[Record]] = field(default_factory=lambda: {n: [] for n in PARTITIONS})
    next_offset: int = 0
    retries: list[Record] = field(default_factory=list)
    retried: Counter[Failure] = field(default_factory=Counter)
    lot: list[Outgoing] = field(default_factory=list)
    reports: dict[Failure, list[datetime]] = field(default_factory=dict)
    garbage: list[bytes] = field(default_factory=list)
    folded: dict[int, tuple[sqlite3.Connection, int]] = field(default_factory=dict)

    def write(self, out: Outgoing) -> None:
        timestamp = int(self.now.timestamp() * 1000)
        if out.topic == "parking-lot":
            self.lot.append(out)
            return
        headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in out.headers]
        place = (timestamp, out.topic, max(0, out.partition), self.next_offset)
        record = Record(out.key, out.value, headers, *place, is_append_time=True)
        self.next_offset += 1
        (self.retries if out.topic == "retries" else self.stores[out.partition]).append(record)

    def fail(self, record: Record, *, elsewhere: bool = False) -> None:
        """Report a failure; elsewhere, if its producer has a partitioner of its own."""
        told = self.now + self.clock_error
        letter = failed_again(record, "E: x", told) if record.topic == "retries" else None
        letter = letter or first_failure(record, "E: x", told)
        out = as_record(letter, record, "dead-letters", len(PARTITIONS))
        if elsewhere:
            out = out._replace(partition=1 - out.partition)
        failure = Failure(letter.id, out.partition, letter.attempt)
        self.reports.setdefault(failure, []).append(self.now)
        self.write(out)

    def litter(self, n: int) -> None:
        """Write a malformed letter, under one of three keys, one of them also a letter's id."""
        key = (b"acct-7", b"junk", original_id(0))[n % 3]
        self.garbage.append(b"payment %d" % len(self.garbage))
        self.write(Outgoing("dead-letters", key, self.garbage[-1], [], n % 2))

    def busy(self, n: int) -> None:
        """Report failures of all kinds."""
        for retry in self.retries[n % 3 :: 2]:
            self.fail(retry, elsewhere=n % 5 == 4)
        for number in range(n % 5):
            self.fail(original(number))
        self.litter(n)

    def clean(self) -> None:
        """Compact, as the broker's cleaner does; tombstones are kept for longer."""
        for partition, store in self.stores.items():
            last = {record.key: record.offset for record in store}
            left = [r for r in store if last[r.key] == r.offset or r.value is None]
            self.stores[partition] = left

    def sweep(
        self, meanwhile: Callable[[], None] = lambda: None, letters_until_death: int | None = None
    ) -> Counter[Outcome]:
        """Sweep each partition; die in each after so many letters, if that is given."""
        found = Counter[Outcome]()
        for partition in PARTITIONS:
            found += self.sweep_partition(partition, meanwhile, letters_until_death)
        return found

    def sweep_partition(
        self, partition: int, meanwhile: Callable[[], None], letters_until_death: int | None
    ) -> Counter[Outcome]:
        job = Sweep(installed(SETTINGS), ROUTES, self.now)
        index = self.letters_now(partition)
        there = {record.offset: record for record in self.stores[partition]}
        index.select()
        due = [(there[selected.offset], selected) for selected in index.selected()]
        before = len(self.retries)
        self.is_due_and_gone(partition, index.counts())
        meanwhile()
        going = in_origin_order(due, index.delayed())
        for record, selected in islice(going, letters_until_death):
            for out in job.records(record, selected):
                self.write(out)
        for retry in self.retries[before:]:
            place = text(retry, "letter-id"), partition, number(retry, "attempt") - 1
            self.retried[Failure(*place)] += 1
            self.is_not_early(retry, Failure(*place))
        in_order(self.retries[before:])
        return index.counts()

    def letters_now(self, partition: int) -> LettersNow:
        """Fold what is new, and return a copy of it as of now."""
        known, until = self.folded.get(partition) or (empty_letters(), -1)
        if new := [record for record in self.stores[partition] if record.offset > until]:
            fold(SETTINGS.retry_rules, known, new)
            self.folded[partition] = known, new[-1].offset
        copy = sqlite3.connect(":memory:")
        known.commit()
        known.backup(copy)
        return LettersNow(copy, self.now)

    def is_not_early(self, retry: Record, failure: Failure) -> None:
        """Check that it has waited for its delay since it was reported, as the broker knows."""
        first = self.reports[failure][0]
        waited = waits(failure.letter_id, number(retry, "attempt") - 1)
        assert self.now >= first + timedelta(seconds=waited)

    def is_due_and_gone(self, partition: int, counts: Counter[Outcome]) -> None:
        """None waits for longer, although old reports may have come on top of it."""
        newest: dict[str, Failure] = {}
        for failure in self.reports:
            before = newest.get(failure.letter_id, failure)
            if failure.partition == partition:
                newest[failure.letter_id] = max(before, failure)
        late = [
            one
            for one in newest.values()
            if self.now < self.reports[one][-1] + timedelta(seconds=waits(one[0], one[2])) + SLACK
            and one not in self.retried
            and one.attempt < 2
        ]
        assert counts[Outcome.WAIT] + counts[Outcome.RESTORE] <= len(late)


SLACK = timedelta(milliseconds=2)  # times are in milliseconds


def waits(letter_id: str, attempt: int) -> float:
    """Return the seconds that a letter waits before it is retried."""
    return delay(SETTINGS.retry_rules.default, attempt, jitter_of(letter_id, attempt))


def text(record: Record, name: str) -> str:
    return str(dict(record.headers)[name], "utf-8")  # type: ignore[arg-type]


def number(record: Record, name: str) -> int:
    return int(dict(record.headers)[name] or b"")


def original(n: int) -> Record:
    return Record(KEYS[n % 3], b"v", [], int(START.timestamp() * 1000), "positions", 0, n)


def original_id(n: int) -> bytes:
    return first_failure(original(n), "", START).id.encode()


TWO_UNDER_ONE_KEY = [("garbage", 0), ("garbage", 6), ("garbage", 3), ("sweep dies", 1)]
ON_TOP = [("fail", 0), *(("garbage", n) for n in (2, 5)), ("sweep", 1), ("clean", 0)]


@example([("fail", 0), ("sweep", 400), ("fail", 0), ("sweep slowly", 3)])
@example([("fail", 0), ("sweep", 400), ("fail again", 0), ("fail", 0), ("sweep", 1), ("clean", 0)])
@example(TWO_UNDER_ONE_KEY)
@example(ON_TOP)
@example([("fail", 0), ("fail elsewhere", 0), ("sweep", 400), *[("fail again", 0)] * 2])
@settings(max_examples=up_to(300, quick=100))
@given(ACTIONS)
def test_each_failure_is_retried_once_or_parked_and_none_is_lost(
    actions: list[tuple[str, int]],
) -> None:
    each_is_dealt_with(actions)


def each_is_dealt_with(actions: list[tuple[str, int]]) -> None:
    world = World()
    for action, n in actions:
        happen(world, action, n)
    world.now += timedelta(days=1)
    world.sweep()
    assert world.sweep() == Counter()
    assert set(world.retried.values()) <= {1}
    parked = {out.key: out.value for out in world.lot}  # what Kafka keeps of each key
    for failure in world.reports:
        was_parked = failure.attempt >= 2 and lot_key(failure) in parked
        is_older = any(
            other[:2] == failure[:2] and other.attempt > failure.attempt for other in world.reports
        )
        assert failure in world.retried or was_parked or is_older, failure
    values = Counter(out.value for out in world.lot if out.value != b"v")
    assert values == Counter(world.garbage)
    assert values == Counter(value for value in parked.values() if value != b"v")


def lot_key(failure: Failure) -> bytes:
    """Return the key in the parking lot: the id, with the partition if that is not its key's."""
    [origin] = [original(n) for n in range(10) if original_id(n) == failure.letter_id.encode()]
    home = partition_of(origin.key or failure.letter_id, len(PARTITIONS))
    named = (
        failure.letter_id
        if failure.partition == home
        else f"{failure.letter_id}~{failure.partition}"
    )
    return named.encode()


def colliding(text: bytes, *, digest_size: int) -> "hashlib.blake2b":
    """Return the hash; of origins, which have eight bytes of it, one of two."""
    of = str(len(text) % 2).encode() if digest_size == 8 else text
    return hashlib.blake2b(of, digest_size=digest_size)


@given(ACTIONS)
def test_original_keys_that_have_the_same_hash_only_wait_for_each_other(
    actions: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stored_letters, "blake2b", colliding)
        each_is_dealt_with(actions)


def test_a_retry_topic_is_no_origin_unless_it_has_a_topic_for_its_own_retries() -> None:
    assert Settings().retry_rules.retry_only_topics == {"retries"}
    origins = "orders: topic=orders; bonds: topic=bonds-retries; retries: attempts=2"
    rules = Settings(retry_origins=origins).retry_rules
    assert rules.retry_only_topics == {"retries", "bonds-retries"}
    assert rules.retry_topics == {"retries", "orders", "bonds-retries"}


def happen(world: World, action: str, n: int) -> None:
    match action:
        case "fail" | "fail elsewhere":
            world.fail(original(n), elsewhere=action == "fail elsewhere")
        case "fail again":
            for retry in world.retries[n % (len(world.retries) or 1) :][:1]:
                world.fail(retry, elsewhere=n == 9)
        case "garbage":
            world.litter(n)
        case "clock":
            world.clock_error = timedelta(seconds=n)
        case "clean":  # records are left alone for a day, and sweeps come more often
            world.sweep()
            world.sweep()
            world.clean()
        case _:
            sweep(world, action, n)


def sweep(world: World, action: str, n: int) -> None:
    match action:
        case "sweep":
            world.now += timedelta(seconds=n)
            world.sweep()
        case "sweep slowly":  # while consumers go on
            world.now += timedelta(seconds=n)
            world.sweep(lambda: world.busy(n))
        case "sweep dies":
            world.now += timedelta(seconds=100)
            world.sweep(letters_until_death=n % 4)


def in_order(retries: list[Record]) -> None:
    """Letters of one original key go in the order of their origin."""
    for key in (b"a", b"b"):
        offsets = [number(r, letters.ORIGIN_OFFSET) for r in retries if r.key == key]
        assert offsets == sorted(offsets)
