"""What the compaction cannot decode: a dead letter, parked, corrected by a person, applied at last.

Real broker, real Spark, real tables, and the very modules of the commands.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any

import pytest
from deltalake import DeltaTable

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import path_of
from shardpost.holders import rejected_letters
from shardpost.holders.model.view_tables import CLIENTS, POSITION_EVENTS
from shardpost.holders.queries import HoldersQuery, explanation, query_holders
from shardpost.kafka import clients, reading, topic_metadata
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import record_of
from shardpost.settings import Settings
from shardpost.topic_names import TopicName
from tests.support.compacting import held, run
from tests.support.how_far import up_to
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import committed, decide, failed, header, live, put, sweep, total
from tests.support.reference import Raw, Retry, closed, position, produce, produce_retry, published

BAD = b'{"Client":"client1","Ticker":"T","Amount":"1,5","Exchange":"NASDAQ"}'
MENDED = b'{"Client":"client1","Ticker":"T","Amount":1.5,"Exchange":"NASDAQ"}'


@pytest.fixture
def ready(fresh: Callable[[], Settings]) -> Settings:
    return fresh()


def bad(key: bytes | None = b"1", value: bytes | None = BAD, topic: TopicName = "positions") -> Raw:
    return Raw(topic, key, value)


def place_of(settings: Settings, record: Raw) -> tuple[int, int]:
    """Send one record; return where it came to."""
    return produce(settings, [record])[id(record)]


def letter_id(settings: Settings, place: tuple[int, int]) -> str:
    topic, (partition, offset) = settings.topic("positions"), place
    there = reading.read_to_end(settings, TopicPartition(topic, partition), start=offset)
    return f"{topic}-{partition}-{offset}@{next(there).timestamp()[1]}"


def letters_of(settings: Settings) -> list[tuple[str, str | None]]:
    """Return each letter that a reader of committed records ever saw: (id, attempt)."""
    found = committed(settings, settings.topic("dead-letters"))
    return sorted(
        ((record.key or b"").decode(), header(record, "attempt"))
        for record in found
        if record.value is not None
    )


def swept(settings: Settings) -> dict[str, int]:
    return total(sweep(settings, datetime.now(UTC)))


def reasons(settings: Settings) -> list[str]:
    sql = "SELECT reason FROM position_events WHERE reason IS NOT NULL ORDER BY retry_offset"
    at = at_snapshot(snapshots.current(settings), POSITION_EVENTS)
    return [row["reason"] for row in rows(settings, sql, at)]


def done(result: dict[str, object]) -> dict[str, object]:
    names = ("rejected", "letters", "retries", "applied")
    return {name: result[name] for name in names if result[name]}


def test_a_poison_position_is_parked_mended_twice_by_a_person_and_applied(ready: Settings) -> None:
    place = place_of(ready, bad())
    assert done(run(ready)) == {"rejected": 1, "letters": 1}
    [letter] = committed(ready, ready.topic("dead-letters"))
    assert (letter.key, letter.value) == (letter_id(ready, place).encode(), BAD)
    stored = topic_metadata.partition_counts(ready, [ready.topic("dead-letters")])[
        ready.topic("dead-letters")
    ]
    assert letter.partition == partition_of(b"1", stored)
    assert header(letter, "origin-key") == "1"
    said = 'Undecodable: expected a number for Amount, found "1,5"'
    assert (header(letter, "error"), header(letter, "attempt")) == (said, "0")

    assert swept(ready) == {"parked": 1}
    [parked] = live(ready, ready.topic("parking-lot")).values()
    assert header(parked, "parked-reason") == "fatal: Undecodable is not retried"
    assert decide(ready, value=b"oops") == 1
    assert done(run(ready)) == {"rejected": 1, "letters": 1, "retries": 1}
    name = letter_id(ready, place)
    assert letters_of(ready) == [(name, "0"), (name, "1")]
    assert swept(ready) == {"parked": 1}
    [parked] = live(ready, ready.topic("parking-lot")).values()
    assert (parked.key, parked.value) == (name.encode(), b"oops")
    assert decide(ready, value=MENDED) == 1
    assert done(run(ready)) == {"retries": 1, "applied": 1}
    assert held(ready) == published(ready) == {"client1": ["1"]}

    [_, retry] = committed(ready, ready.topic("retries"))
    snapshot = snapshots.current(ready)
    [explained] = explanation(ready, snapshot, "client1", "1")
    assert explained.coordinates == retry.coordinates
    at = datetime.fromtimestamp(retry.timestamp / 1000, UTC)
    assert explained.timestamp == at
    assert query_holders(ready, snapshot, HoldersQuery(as_of=at)) == {}
    later = HoldersQuery(as_of=at + timedelta(milliseconds=1))
    assert query_holders(ready, snapshot, later) == {"client1": ["1"]}
    assert done(run(ready)) == {}


@dataclass(frozen=True)
class Corrected:
    """A world of two runs, each with the corrections of several tests, on keys of their own."""

    settings: Settings
    results: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    _records: dict[str, Raw] = field(default_factory=dict)

    def held(self, number: int) -> dict[str, list[str]]:
        """Return what is held at the snapshot of that number, 1 or 2."""
        snapshot = snapshots.list_all(self.settings)[number - 1]
        return query_holders(self.settings, snapshot, HoldersQuery())

    def send(self, name: str, record: Raw) -> None:
        """Send a record that is retried under this name."""
        self._records[name], self.places[name] = record, place_of(self.settings, record)

    def retry(self, name: str, value: bytes, key: bytes | None = None, **more: str) -> None:
        made = Retry(self._records[name], value)
        produce_retry(self.settings, made, self.places[name], key, **more)

    def retry_with_an_old_time(self, name: str, value: bytes) -> None:
        made = Retry(self._records[name], value, timestamp_ms=1_700_000_000_000)
        produce_retry(self.settings, made, self.places[name])

    def retry_under_other_keys(self, name: str, holder: str) -> None:
        for key in (holder.encode(), b"never seen", b"\xff"):
            self.retry(name, MENDED, key, origin_key=holder)

    def run(self) -> None:
        said: SimpleQueue[logging.LogRecord] = SimpleQueue()
        log, handler = logging.getLogger("shardpost"), QueueHandler(said)
        log.addHandler(handler)
        self.results.append(run(self.settings))
        log.removeHandler(handler)
        while not said.empty():
            self.said.append(said.get().getMessage())


WRONG: list[dict[str, str]] = [
    {"origin_partition": "9"},
    {"origin_partition": "x"},
    {"origin_offset": "1000"},
    {"origin_offset": "9" * 30},
    {"origin_offset": "-1"},
]


def mended(client: str) -> bytes:
    return MENDED.replace(b"client1", client.encode())


@pytest.fixture(scope="module")
def corrected(shared: Settings) -> Corrected:
    world = Corrected(shared)
    send_records(world)
    correct_before_the_first_run(world)
    world.run()
    correct_before_the_second_run(world)
    world.run()
    return world


def send_records(world: Corrected) -> None:
    world.send("good", position("good", "of good", "NASDAQ"))
    produce(world.settings, [position("closed", "of closed", "NASDAQ")])
    for key in ("closed", "other origin", "twice at once", "twice", "at once", "later"):
        world.send(key, bad(key.encode()))
    produce(world.settings, [position("new", "of new", "NEW")])
    world.send("exchange", bad(b"NEW", b'{"Country":5}', "exchanges"))
    world.send("client", bad(b"of new", b"{", "clients"))
    world.send("misplaced", bad(b"misplaced"))
    for when in ("at once", "later"):
        for key in (f"newer {when}", f"closed {when}"):
            world.send(key, bad(key.encode()))
        produce(world.settings, [position(f"newer {when}", "of newer", "NASDAQ")])
        produce(world.settings, [closed(f"closed {when}")])
        for key in (f"holder {when}", f"good {when}"):
            world.send(key, position(key, f"of {key}", "NASDAQ"))


def correct_before_the_first_run(world: Corrected) -> None:
    world.retry("good", mended("another"))
    world.retry_with_an_old_time("twice at once", mended("first"))
    world.retry_with_an_old_time("twice at once", mended("second"))
    world.retry_with_an_old_time("twice", mended("first"))
    for more in WRONG:
        world.retry("misplaced", mended("of misplaced"), None, **more)
    for name in ("newer at once", "closed at once"):
        world.retry(name, MENDED)
    for name in ("at once", "good at once"):
        world.retry_under_other_keys(name, "holder at once")


def correct_before_the_second_run(world: Corrected) -> None:
    world.retry("good", mended("another"))
    world.retry("closed", b"", origin_null="true")
    world.retry("other origin", MENDED, origin_topic="orders")
    produce(world.settings, [Raw("retries", b"other origin", MENDED)])
    world.retry("exchange", b'{"Country":"US"}')
    world.retry("client", b'{"Name":"Ann","Subscribed":true}')
    world.retry_with_an_old_time("twice", mended("second"))
    world.retry("misplaced", mended("of misplaced"))
    for name in ("newer later", "closed later"):
        world.retry(name, MENDED)
    for name in ("later", "good later"):
        world.retry_under_other_keys(name, "holder later")


def test_each_run_counts_its_rejected_records_and_its_corrections(corrected: Corrected) -> None:
    first, second = map(done, corrected.results)
    assert first == {"rejected": 13 + 11, "letters": 13 + 11, "retries": 17, "applied": 2}
    assert second == {"rejected": 6, "letters": 6, "retries": 14, "applied": 5}
    # Of the two at once the first; each time a correction of a good record, and two that came late.
    assert [one["without_effect"] for one in corrected.results] == [1 + 1 + 2, 1 + 2]


def test_of_two_corrections_the_later_one_counts(corrected: Corrected) -> None:
    assert corrected.held(1)["second"] == ["twice at once"]
    assert corrected.held(1)["first"] == ["twice"]
    assert corrected.held(2)["second"] == ["twice", "twice at once"]
    assert "first" not in corrected.held(2)
    newest = snapshots.current(corrected.settings)
    for key in ("twice", "twice at once"):
        changes = explanation(corrected.settings, newest, "first", key)
        assert [one.change for one in changes] == ["put", "took"]


def test_a_correction_of_a_good_record_changes_nothing(corrected: Corrected) -> None:
    for number in (1, 2):  # in the run of the record itself, and in a later one
        assert corrected.held(number)["of good"] == ["good"]
        assert "another" not in corrected.held(number)


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_correction_after_a_newer_good_record_changes_nothing_and_is_named(
    corrected: Corrected, when: str
) -> None:
    assert corrected.held(2)["of newer"] == ["newer at once", "newer later"]
    assert "client1" not in corrected.held(2)
    newest = snapshots.current(corrected.settings)
    for key in (f"newer {when}", f"closed {when}"):
        partition, offset = corrected.places[key]
        origin = f"{corrected.settings.topic('positions')}[{partition}]@{offset}"
        said = re.compile(rf"(\S+): corrects {re.escape(origin)} without effect")
        [named] = filter(None, map(said.search, corrected.said))
        explained = explanation(corrected.settings, newest, "client1", key)
        if when == "later":  # in one run, times tell: the correction may have counted for a while
            assert [(one.change, str(one.coordinates)) for one in explained[1:]] == [
                ("no effect", named[1])
            ]


def test_a_retry_whose_origin_cannot_be_is_rejected_and_blocks_nothing(
    corrected: Corrected,
) -> None:
    partition, offset = corrected.places["misplaced"]
    topic = corrected.settings.topic("positions")
    found = reasons(corrected.settings)
    for more in WRONG:
        place = {"origin_partition": partition, "origin_offset": offset} | more
        claimed = f"{topic}[{place['origin_partition']}]@{place['origin_offset']}"
        assert f"expected the coordinates of a record of {topic}, found {claimed}" in found
    assert "of misplaced" not in corrected.held(1)
    assert corrected.held(2)["of misplaced"] == ["misplaced"]


def test_a_correction_that_is_null_closes_the_position(corrected: Corrected) -> None:
    assert corrected.held(1)["of closed"] == ["closed"]
    assert "of closed" not in corrected.held(2)


def test_a_retry_of_one_key_corrects_no_other(corrected: Corrected) -> None:
    for when, number in (("at once", 1), ("later", 2)):
        assert corrected.held(number)[f"of holder {when}"] == [f"holder {when}"]
        assert corrected.held(number)[f"of good {when}"] == [f"good {when}"]
        partition, offset = corrected.places[when]
        home = f"{corrected.settings.topic('positions')}[{partition}]@{offset}"
        for name in (f"holder {when}", "never seen", "FF"):
            said = f"expected the key of {home}, {when}, found {name}"
            assert said in reasons(corrected.settings)


def test_retries_of_other_origins_are_passed_over(corrected: Corrected) -> None:
    for number in (1, 2):
        assert "client1" not in corrected.held(number)


def test_clients_and_exchanges_are_mended_too(corrected: Corrected) -> None:
    assert "of new" not in corrected.held(1)
    assert corrected.held(2)["of new"] == ["new"]
    assert held(corrected.settings) == published(corrected.settings) == corrected.held(2)
    at = at_snapshot(snapshots.current(corrected.settings), CLIENTS)
    found = rows(corrected.settings, "SELECT key, name FROM clients", at)
    assert found == [{"key": "of new", "name": "Ann"}]


def test_poison_of_which_another_consumer_made_a_letter_first_is_seen_all_the_same(
    ready: Settings,
) -> None:
    """Both make the letter of one id; the other's is retried, and the compaction reads retries."""
    place = place_of(ready, bad())
    [message] = reading.read_to_end(ready, TopicPartition(ready.topic("positions"), place[0]))
    theirs = failed(ready, record_of(message), "ValueError: no comma, please", datetime.now(UTC))
    put(ready, [theirs])
    later = datetime.now(UTC) + timedelta(hours=1)
    assert total(sweep(ready, later)) == {"retried": 1}
    assert run(ready)["letters"] == 2  # of the record, and of its retry
    found = total(sweep(ready, later))
    assert found in ({"parked": 1}, {"parked": 1, "dropped": 1})
    [parked] = live(ready, ready.topic("parking-lot")).values()
    assert (parked.key, parked.value) == (letter_id(ready, place).encode(), BAD)
    assert (header(parked, "error") or "").startswith("Undecodable: ")
    assert total(sweep(ready, later)) == {}


def test_poison_that_goes_round_ends_in_the_parking_lot(ready: Settings) -> None:
    attempts = up_to(2, 1)
    round_ = ready.model_copy(update={"retry_fatal": "Other", "retry_attempts": attempts})
    place = place_of(ready, bad())
    later = datetime.now(UTC)
    for _ in range(attempts):
        assert run(ready)["letters"] == 1
        later += timedelta(hours=1)
        assert total(sweep(round_, later)) == {"retried": 1}
    assert run(ready)["letters"] == 1
    assert total(sweep(round_, later)) == {"parked": 1}
    [parked] = live(ready, ready.topic("parking-lot")).values()
    assert header(parked, "parked-reason") == f"exhausted: attempt {attempts} of {attempts} failed"
    assert header(parked, "letter-id") == letter_id(ready, place)


def test_every_byte_of_what_was_rejected_is_in_its_letter(ready: Settings) -> None:
    produce(ready, [bad(b"1", b"\xff\x00"), bad(b"\xfe", None), bad(b"", MENDED)])
    producer = clients.producer(ready)
    headers: list[tuple[str, str | bytes | None]] = [("a", b"\xff"), ("a", None), ("attempt", b"7")]
    producer.produce(ready.topic("clients"), key=b"c", value=b"[" * 900_000, headers=headers)
    assert producer.flush(30) == 0
    assert run(ready)["letters"] == 4
    found = {record.value: record for record in committed(ready, ready.topic("dead-letters"))}
    assert set(found) == {b"\xff\x00", b"", MENDED, b"[" * 900_000}
    assert header(found[b""], "origin-null") == "true"
    assert dict(found[b""].headers)["origin-key"] == b"\xfe"
    assert dict(found[MENDED].headers)["origin-key"] == b""
    large = found[b"[" * 900_000].headers
    assert list(large[:2]) == [("a", b"\xff"), ("a", None)]
    assert dict(large)["attempt"] == b"0"


def test_of_what_is_too_large_for_a_letter_one_without_value_is_parked(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    configure_topic(ready, ready.topic("dead-letters"), {"max.message.bytes": "10000"})
    place = place_of(ready, bad(b"1", b"x" * 20_000))
    place_of(ready, bad(b"2"))
    assert done(run(ready)) == {"rejected": 2, "letters": 2}
    at = f"{ready.topic('positions')}[{place[0]}]@{place[1]}"
    assert f"{at}: too large for a letter" in caplog.text
    assert swept(ready) == {"parked": 2}
    lot = live(ready, ready.topic("parking-lot")).values()
    [parked] = [one for one in lot if header(one, "stored-key") == letter_id(ready, place)]
    assert parked.value == b""
    assert "its value is left out: expected a letter of at most 10000" in (
        header(parked, "error") or ""
    )


def test_a_discarded_letter_stays_away_also_when_kafka_has_forgotten(ready: Settings) -> None:
    first = place_of(ready, bad())
    run(ready)
    swept(ready)
    assert decide(ready, is_redrive=False) == 1
    tables = DeltaTable(path_of(ready, SNAPSHOTS)).metadata().id
    group = f"{rejected_letters.GROUP}-{tables}"
    admin = clients.admin(ready)
    admin.delete_consumer_groups([group])[group].result(30)
    second = place_of(ready, bad())
    assert run(ready)["letters"] == 1
    both = [(letter_id(ready, first), "0"), (letter_id(ready, second), "0")]
    assert letters_of(ready) == sorted(both)
