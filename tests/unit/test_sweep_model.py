"""Random histories of failures, reports that come twice, and sweeps, against a plain model.

The clocks of consumers may be wrong, each report by another number of seconds. The broker's is not.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings, strategies

from shardpost.dead_letters import sweep_index
from shardpost.dead_letters.model import letters
from shardpost.dead_letters.model.backoff import delay
from shardpost.dead_letters.model.letters import as_record, failed_again, first_failure
from shardpost.dead_letters.model.outcome import Outcome
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.dead_letters.origin_order import in_origin_order
from shardpost.dead_letters.sweep_partition import Sweep
from shardpost.kafka.records import Outgoing, Record
from shardpost.settings import Settings

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = Settings(retry_attempts=2, retry_jitter=0.5, retry_batch=3)
ROUTES = Routes("dead-letters", "parking-lot", {"dead-letters": 1, "parking-lot": 1, "retries": 1})
KEYS = (b"a", b"b", None)

ACTIONS = strategies.lists(
    strategies.one_of(
        strategies.tuples(strategies.just("fail"), strategies.integers(0, 9)),
        strategies.tuples(strategies.just("fail again"), strategies.integers(0, 9)),
        strategies.tuples(strategies.just("garbage"), strategies.integers(0, 2)),
        strategies.tuples(strategies.just("clock"), strategies.integers(-900, 900)),
        strategies.tuples(strategies.just("clean"), strategies.just(0)),
        strategies.tuples(strategies.just("sweep"), strategies.integers(0, 400)),
        strategies.tuples(strategies.just("sweep slowly"), strategies.integers(0, 400)),
    ),
    max_size=40,
)


@dataclass
class World:
    """One partition of the store, the retries, the parking lot, and a clock.

    `reports` has when each failure was reported: first and last.
    """

    now: datetime = START
    clock_error: timedelta = timedelta(0)
    next_offset: int = 0
    store: list[Record] = field(default_factory=list)
    retries: list[Record] = field(default_factory=list)
    lot: list[Outgoing] = field(default_factory=list)
    reports: dict[tuple[str, int], list[datetime]] = field(default_factory=dict)

    @property
    def failures(self) -> set[tuple[str, int]]:
        return set(self.reports)

    def write(self, out: Outgoing) -> None:
        timestamp = int(self.now.timestamp() * 1000)
        if out.topic == "parking-lot":
            self.lot.append(out)
            return
        headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in out.headers]
        place = (timestamp, out.topic, 0, self.next_offset)
        record = Record(out.key, out.value, headers, *place, is_append_time=True)
        self.next_offset += 1
        (self.retries if out.topic == "retries" else self.store).append(record)

    def fail(self, record: Record) -> None:
        told = self.now + self.clock_error
        letter = failed_again(record, "E: x", told) if record.topic == "retries" else None
        letter = letter or first_failure(record, "E: x", told)
        self.reports.setdefault((letter.id, letter.attempt), []).append(self.now)
        self.write(as_record(letter, record, "dead-letters", 1))

    def busy(self, n: int) -> None:
        """Report failures of all kinds."""
        for retry in self.retries[n % 3 :: 2]:
            self.fail(retry)
        for number in range(n % 5):
            self.fail(original(number))
        self.write(Outgoing("dead-letters", b"junk%d" % (n % 3), b"v", []))

    def clean(self) -> None:
        """Compact, as the broker's cleaner does; tombstones are kept for longer."""
        last = {record.key: record.offset for record in self.store}
        self.store = [r for r in self.store if last[r.key] == r.offset or r.value is None]

    def sweep(self, meanwhile: Callable[[], None] = lambda: None) -> Counter[Outcome]:
        job = Sweep(SETTINGS, ROUTES, self.now)
        index = job.index()
        for record in self.store:
            index.add(record)
        there = {record.offset: record for record in self.store}
        due = [(there[selected.offset], selected) for selected in index.selected()]
        before = len(self.retries)
        self.is_due_and_gone(index.counts())
        meanwhile()
        for record, selected in in_origin_order(due, index.delayed()):
            for out in job.records(record, selected):
                self.write(out)
        self.none_is_early(self.retries[before:])
        return index.counts()

    def none_is_early(self, retries: list[Record]) -> None:
        """Each has waited for its delay since it was reported, as the broker knows."""
        for retry in retries:
            letter_id, attempt = text(retry, "letter-id"), number(retry, "attempt") - 1
            first = self.reports[letter_id, attempt][0]
            assert self.now >= first + timedelta(seconds=waits(letter_id, attempt))

    def is_due_and_gone(self, counts: Counter[Outcome]) -> None:
        """None waits for longer, although old reports may have come on top of it."""
        newest: dict[str, int] = {}
        for letter_id, attempt in self.reports:
            newest[letter_id] = max(attempt, newest.get(letter_id, 0))
        gone = {(text(r, "letter-id"), number(r, "attempt") - 1) for r in self.retries}
        late = [
            one
            for one in newest.items()
            if self.now < self.reports[one][-1] + timedelta(seconds=waits(*one)) + SLACK
            and one not in gone
            and one[1] < 2
        ]
        assert counts[Outcome.WAIT] + counts[Outcome.RESTORE] <= len(late)


SLACK = timedelta(milliseconds=2)  # times are in milliseconds


def waits(letter_id: str, attempt: int) -> float:
    """Return the seconds that a letter waits before it is retried."""
    return delay(SETTINGS.retry_rules.default, letter_id, attempt)


def text(record: Record, name: str) -> str:
    return str(dict(record.headers)[name], "utf-8")  # type: ignore[arg-type]


def number(record: Record, name: str) -> int:
    return int(dict(record.headers)[name] or b"")


def original(n: int) -> Record:
    return Record(KEYS[n % 3], b"v", [], int(START.timestamp() * 1000), "positions", 0, n)


@example([("fail", 0), ("sweep", 400), ("fail", 0), ("sweep slowly", 3)])
@example([("fail", 0), ("sweep", 400), ("fail again", 0), ("fail", 0), ("sweep", 1), ("clean", 0)])
@settings(max_examples=300)
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
    counted = Counter((dict(r.headers)["letter-id"], number(r, "attempt")) for r in world.retries)
    assert set(counted.values()) <= {1}
    for letter_id, attempt in world.failures:
        was_retried = (letter_id.encode(), attempt + 1) in counted
        was_parked = attempt >= 2 and letter_id in {(out.key or b"").decode() for out in world.lot}
        is_older = any(i == letter_id and a > attempt for i, a in world.failures)
        assert was_retried or was_parked or is_older, (letter_id, attempt)


@given(ACTIONS)
def test_original_keys_that_have_the_same_hash_only_wait_for_each_other(
    actions: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweep_index, "hash", lambda key: len(key) % 2, raising=False)
        each_is_dealt_with(actions)


def test_a_retry_topic_is_no_origin_unless_it_has_a_topic_for_its_own_retries() -> None:
    assert Settings().retry_rules.retry_only_topics == {"retries"}
    origins = "orders: topic=orders; bonds: topic=bonds-retries; retries: attempts=2"
    rules = Settings(retry_origins=origins).retry_rules
    assert rules.retry_only_topics == {"retries", "bonds-retries"}
    assert rules.retry_topics == {"retries", "orders", "bonds-retries"}


def happen(world: World, action: str, n: int) -> None:
    before = len(world.retries)
    match action:
        case "fail":
            world.fail(original(n))
        case "fail again" if world.retries:
            world.fail(world.retries[n % len(world.retries)])
        case "garbage":
            world.write(Outgoing("dead-letters", b"junk%d" % n, b"v", []))
        case "clock":
            world.clock_error = timedelta(seconds=n)
        case "clean":  # records are left alone for a day, and sweeps come more often
            world.sweep()
            world.clean()
        case "sweep slowly":  # while consumers go on
            world.now += timedelta(seconds=n)
            world.sweep(lambda: world.busy(n))
        case "sweep":
            world.now += timedelta(seconds=n)
            world.sweep()
    in_order(world.retries[before:])


def in_order(retries: list[Record]) -> None:
    """Letters of one original key go in the order of their origin."""
    for key in (b"a", b"b"):
        offsets = [number(r, letters.ORIGIN_OFFSET) for r in retries if r.key == key]
        assert offsets == sorted(offsets)
