"""What the tests of dead letters share: failing consumers, sweeps in this process, results."""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from shardpost.dead_letters import letter_topics, stored_letters
from shardpost.dead_letters.letter_index import FOLDER, KeptIndex, open_index
from shardpost.dead_letters.letter_topics import routes_of
from shardpost.dead_letters.letters_table import catch_up, not_in_table, steps_where
from shardpost.dead_letters.listed_letters import listed
from shardpost.dead_letters.model import letter_format, letters
from shardpost.dead_letters.model.letter_history import ListFilters, Step, newest_steps
from shardpost.dead_letters.model.redrive_request import RedriveRequest
from shardpost.dead_letters.redrive import RedriveResult, carry_out_redrive
from shardpost.dead_letters.redrive_plan import prepared
from shardpost.dead_letters.stored_letters import known_to_wait
from shardpost.dead_letters.sweep import PartitionReport, Sweep, sweep_partition
from shardpost.dead_letters.sweep_job import Intake, as_json
from shardpost.kafka import reading, topic_metadata
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import record_of
from shardpost.kafka.records import NO_TIMESTAMP, Outgoing, Record, TopicPartition
from shardpost.settings import Settings
from shardpost.topics import topics_file
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import CLIENTS, LETTER_TOPICS, POSITIONS
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.transactions import begun_transaction

GIVEN_TIMES = """\
topics:
  dead-letters:
    config:
      message.timestamp.type: CreateTime
"""
START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)


def apply_topics_with_given_times(settings: Settings, *, letters_only: bool = False) -> None:
    """Make all topics, with a store that keeps the times that a test gives to its letters.

    The store of the default declaration is stamped by the broker. `letters_only`: those of letters,
    and two from which they come.
    """
    file = settings.home / "topics.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(GIVEN_TIMES)
    with pytest.MonkeyPatch.context() as patch:
        if letters_only:
            patch.setattr(topics_file, "DECLARED", (POSITIONS, CLIENTS, *LETTER_TOPICS))
        apply_topics(installed(settings.model_copy(update={"topics_file": file})))


def ready_for_letters(settings: Settings, **update: Any) -> Settings:
    """Make the topics of letters, and return the settings with these changes, without jitter."""
    made = settings.model_copy(update={"retry_jitter": 0.0, "kafka_timeout": 10.0} | update)
    apply_topics_with_given_times(made, letters_only=True)
    return made


def original(
    offset: int, key: bytes | None = b"k", value: bytes | None = b"v", **more: Any
) -> Record:
    """Return a record of `positions`, partition 0, without a time: so its id is its place."""
    headers, topic = more.get("headers", []), more.get("topic", "positions")
    return Record(key, value, headers, NO_TIMESTAMP, topic, 0, offset)


def failed(
    settings: Settings, record: Record, error: str = "ValueError: bad", when: datetime = START
) -> Outgoing:
    """Return the letter of a record, or of a retry, whose processing failed."""
    letter = None
    if record.topic == settings.topic("retries"):
        letter = letters.failed_again(record, error, when)
    letter = letter or letters.first_failure(record, error, when)
    store = settings.topic("dead-letters")
    out = letters.as_record(letter, record, store, _count(settings.bootstrap, store))
    return out._replace(timestamp=milliseconds(when))


@cache
def _count(bootstrap: str, topic: str) -> int:
    """Return how many partitions a topic has, asked for once and not for every letter."""
    settings = Settings(bootstrap_servers=bootstrap)
    return topic_metadata.partition_counts(installed(settings).kafka, [topic])[topic]


def put(settings: Settings, records: Iterable[Outgoing]) -> None:
    producer = Producer(
        installed(settings).kafka.config(
            **{
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "message.max.bytes": 2_000_000,
            },
        )
    )
    for record in records:
        producer.produce(**record.arguments(), on_delivery=_delivered)
        producer.poll(0)
    assert producer.flush(60) == 0


def produce(settings: Settings, *records: Outgoing) -> None:
    """Write records by the client of these settings: to Kafka in memory, if they say so."""
    producer = installed(settings).kafka.producer()
    for record in records:
        producer.produce(**record.arguments())
    assert producer.flush(1) == 0


def open_transaction_behind(settings: Settings, letter: Record) -> Producer:
    """Open a stranger's transaction on a letter's partition, for the test to end."""
    stranger = begun_transaction(settings, f"stranger-{letter.topic}")
    stranger.produce(letter.topic, b"v", b"other", letter.partition)
    stranger.flush(10)
    return stranger


def _delivered(error: object, _message: Message) -> None:
    assert error is None


def sweep(settings: Settings, now: datetime) -> list[PartitionReport]:
    """Sweep every partition in this process, one after the other.

    Where it is known before that nothing is due, nothing is found to be.
    """
    routes = routes_of(installed(settings))
    job = Sweep(installed(settings), routes, now)
    store, count = routes.store, routes.partitions[routes.store]
    strangers = _open_transactions(settings)
    known = known_to_wait(installed(settings), store, count, now)
    done = [sweep_partition(job, TopicPartition(store, number)) for number in range(count)]
    if not any(report.error for report in done):
        await_markers(settings, strangers)
        assert known is None or total(done) == ({"waiting": known} if known else {})
    return done


def empty_letters() -> sqlite3.Connection:
    """Return the tables of a partition of the store in memory, without letters."""
    database = sqlite3.connect(":memory:")
    for table in stored_letters.TABLES:
        database.execute(f"CREATE TABLE {table}")
    return database


def await_markers(settings: Settings, strangers: Set[tuple[str, int]] = frozenset()) -> None:
    """Wait until readers see what was committed: brokers write markers after they have answered."""
    wait_for(lambda: _open_transactions(settings) <= strangers, "the markers of transactions")


def _open_transactions(settings: Settings) -> set[tuple[str, int]]:
    """Return the partitions of letters with more records than readers of committed ones see."""
    counts = letter_topics.partitions(installed(settings).kafka)
    stable, high = (
        watermarks(installed(settings).kafka, counts, committed=level) for level in (True, False)
    )
    return {(topic, n) for topic, ends in high.items() for n in ends if ends[n] > stable[topic][n]}


def append(settings: Settings) -> int:
    """Append to the table what it does not have; return how many offsets."""
    return catch_up(installed(settings), letter_topics.partitions(installed(settings).kafka))


def states(settings: Settings) -> dict[str, str]:
    """Return the state of each letter; the same from the topics alone, and from the table.

    So does the index say it, of each letter all that the list has, also where it is made anew.
    """
    await_markers(settings)
    before = every_letter(settings)
    assert in_index(settings) == listed_facts(before)
    append(settings)
    after = {name: str(step.state) for name, step in every_letter(settings).items()}
    found = {name: str(step.state) for name, step in before.items()}
    assert after == found, (after, found)
    assert in_index(settings) == listed_facts(before)
    shutil.rmtree(settings.home / FOLDER, ignore_errors=True)
    assert in_index(settings) == listed_facts(before)
    return found


def every_letter(settings: Settings) -> dict[str, Step]:
    """Return the newest step of each letter, of all steps that there are, by the letter's name."""
    own = installed(settings)
    progress = letter_topics.current_progress(own)
    steps = [*steps_where(own, "true"), *not_in_table(own, progress)]
    return newest_steps(steps, progress.generations)


def in_index(settings: Settings) -> dict[str, Step]:
    """Return all letters as the index has them, with their errors, by their names."""
    every = ListFilters(since=datetime(1970, 1, 1, tzinfo=UTC))
    index = open_index(installed(settings), KeptIndex())
    found = listed(installed(settings), index, every, START)
    steps = found.page(0, found.total)
    assert len({step.id for step in steps}) == len(steps) == sum(g.letters for g in found.groups())
    return listed_facts({step.id: step for step in steps})


def listed_facts(found: dict[str, Step]) -> dict[str, Step]:
    """Return the steps without what the list does not have, and the table has for some only."""
    left_out: dict[str, Any] = dict.fromkeys(
        ("origin_partition", "origin_offset", "origin_key", "size", "failed_at")
    )
    return {name: replace(step, **left_out) for name, step in found.items()}


def decide(settings: Settings, *, value: bytes | None = None, is_redrive: bool = True) -> int:
    """Redrive or discard all that is parked, as `letters redrive --apply` does; return how many."""
    now = datetime.now(UTC)
    request = RedriveRequest(
        ListFilters(), is_redrive, who="me", why="comma", now=now, allow_repeated=True, value=value
    )
    result = RedriveResult()
    carry_out_redrive(prepared(installed(settings), request), result)
    return result.count


def total(reports: Iterable[PartitionReport]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for report in reports:
        assert report.error is None, report.error
        swept = as_json(report.counts, Counter(), Intake())
        found.update({name: count for name, count in swept.items() if isinstance(count, int)})
    return {name: count for name, count in found.items() if count}


def committed(settings: Settings, topic: str) -> Iterator[Record]:
    """Yield all committed records of a topic, partition by partition."""
    count = topic_metadata.partition_counts(installed(settings).kafka, [topic])[topic]
    for partition in range(count):
        for message in reading.read_to_end(
            installed(settings).kafka, TopicPartition(topic, partition)
        ):
            yield record_of(message)


def retries(settings: Settings) -> list[Record]:
    return list(committed(settings, settings.topic("retries")))


def live(settings: Settings, topic: str) -> dict[bytes | None, Record]:
    """Return the last record of each key that is no tombstone."""
    found: dict[bytes | None, Record] = {}
    for record in committed(settings, topic):
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record
    return found


def header(record: Record, name: str) -> str | None:
    value = dict(record.headers).get(name)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def seen(settings: Settings) -> Counter[tuple[str | None, str | None]]:
    """Return how often a reader of committed records sees each letter and attempt."""
    found = retries(settings)
    return Counter((header(r, letter_format.ID), header(r, letter_format.ATTEMPT)) for r in found)


def decisions(settings: Settings) -> list[dict[str, Any]]:
    return [
        json.loads(record.value or b"{}") | {"About": (record.key or b"").decode()}
        for record in committed(settings, settings.topic("decisions"))
    ]
