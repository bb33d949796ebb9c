"""What the compaction cannot decode: a dead letter, parked, corrected by a person, applied at last.

Real broker, real Spark, real tables, and the very modules of the commands.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from shardpost.delta import snapshots
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import path_of
from shardpost.holders import rejected_letters
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.position_history import explanation
from shardpost.kafka import reading, topic_metadata
from shardpost.kafka.reading import record_of
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.settings import Settings
from tests.support.compacting import held, run
from tests.support.corrections import BAD, MENDED, bad, done, place_of
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import committed, decide, failed, header, live, put, sweep, total
from tests.support.reference import produce, published


@pytest.fixture
def ready(fresh: Callable[[], Settings]) -> Settings:
    return fresh()


def letter_id(settings: Settings, place: tuple[int, int]) -> str:
    topic, (partition, offset) = settings.topic("positions"), place
    there = reading.read_to_end(
        installed(settings).kafka, TopicPartition(topic, partition), start=offset
    )
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


def test_a_poison_position_is_parked_mended_twice_by_a_person_and_applied(ready: Settings) -> None:
    place = place_of(ready, bad())
    assert done(run(ready)) == {"rejected": 1, "letters": 1}
    [letter] = committed(ready, ready.topic("dead-letters"))
    assert (letter.key, letter.value) == (letter_id(ready, place).encode(), BAD)
    stored = topic_metadata.partition_counts(installed(ready).kafka, [ready.topic("dead-letters")])[
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
    snapshot = snapshots.current(installed(ready).tables)
    [explained] = explanation(installed(ready), snapshot, "client1", "1")
    assert explained.coordinates == retry.coordinates
    at = datetime.fromtimestamp(retry.timestamp / 1000, UTC)
    assert explained.timestamp == at
    assert query_holders(installed(ready).tables, snapshot, HoldersQuery(as_of=at)) == {}
    later = HoldersQuery(as_of=at + timedelta(milliseconds=1))
    assert query_holders(installed(ready).tables, snapshot, later) == {"client1": ["1"]}
    assert done(run(ready)) == {}


@pytest.mark.one_of("letters of a compaction")
def test_poison_of_which_another_consumer_made_a_letter_first_is_seen_all_the_same(
    ready: Settings,
) -> None:
    """Both make the letter of one id; the other's is retried, and the compaction reads retries."""
    place = place_of(ready, bad())
    [message] = reading.read_to_end(
        installed(ready).kafka, TopicPartition(ready.topic("positions"), place[0])
    )
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


@pytest.mark.one_of("letters of a compaction")
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
    producer = installed(ready).kafka.producer()
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
    assert "its value was left out: expected a letter of at most 10000" in (
        header(parked, "error") or ""
    )


@pytest.mark.one_of("letters of a compaction")
def test_a_discarded_letter_stays_away_also_when_kafka_has_forgotten(ready: Settings) -> None:
    first = place_of(ready, bad())
    run(ready)
    swept(ready)
    assert decide(ready, is_redrive=False) == 1
    tables = DeltaTable(path_of(installed(ready).tables, SNAPSHOTS)).metadata().id
    group = f"{rejected_letters.GROUP}-{tables}"
    admin = installed(ready).kafka.admin()
    admin.delete_consumer_groups([group])[group].result(30)
    second = place_of(ready, bad())
    assert run(ready)["letters"] == 1
    both = [(letter_id(ready, first), "0"), (letter_id(ready, second), "0")]
    assert letters_of(ready) == sorted(both)
