"""A broker that is killed, and one that cleans: what is said of transactions and letters stays."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from shardpost.dead_letters.sweep import PartitionReport
from shardpost.embedded import broker
from shardpost.kafka import offsets
from shardpost.kafka import reading as kafka
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from tests.support.broker_process import kill_broker, own_broker
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import configure_broker, configure_topic
from tests.support.letter_world import committed, failed, live, original, put, seen, sweep, total

COUNT = 300
LATER = datetime.now(UTC) + timedelta(days=1)  # when all are due
MANY = up_to(3000, 1000)  # in pairs: sent in seconds, so that it can be stopped midway
WRITERS = 8  # with so many at once, some commit is under way at any moment
TOPICS = dict.fromkeys(("dead-letters", "retries", "decisions", "run-requests"), 1)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Settings]:
    """Give settings of a broker that nobody else uses."""
    with own_broker(tmp_path / "home", partitions=1, retry_jitter=0.0) as settings:
        yield settings


def letters(settings: Settings, count: int) -> None:
    put(settings, [failed(settings, original(n, b"k%d" % n)) for n in range(count)])


def sent(settings: Settings) -> int:
    topic = settings.topic("retries")
    marks = offsets.watermarks(installed(settings).kafka, {topic: 1}, committed=True)[topic]
    return sum(high - low for low, high in marks.values())


def sweep_into(reports: list[PartitionReport], settings: Settings) -> None:
    reports.extend(sweep(settings, LATER))


def has_started(reports: list[PartitionReport], settings: Settings, there: int) -> bool:
    return bool(reports) or sent(settings) > there + 20


@pytest.mark.one_of("lives of a broker")
def test_a_broker_that_dies_is_waited_for_within_a_bound_and_nothing_is_sent_twice(
    alone: Settings,
) -> None:
    letters(alone, MANY)
    hasty = alone.model_copy(update={"retry_batch": 2, "kafka_timeout": 3.0})
    # Its transactions outlast the time that a broker takes to start.
    patient = alone.model_copy(update={"retry_batch": 2, "kafka_timeout": 120.0})
    for settings in (hasty, patient):
        there = sent(alone)
        reports: list[PartitionReport] = []
        sweeper = threading.Thread(target=sweep_into, args=(reports, settings))
        sweeper.start()
        wait_for(partial(has_started, reports, alone, there), "retries")
        assert reports == []
        kill_broker(alone)
        if settings is hasty:
            sweeper.join(40)
            [report] = reports
            assert report.error
        broker.start(alone)
        if settings is patient:
            sweeper.join(120)
            [report] = reports
            assert report.error is None
    found = seen(patient)  # the second sweep has ended what the first left open
    assert set(found.values()) == {1}
    assert len(found) == MANY
    assert live(patient, alone.topic("dead-letters")) == {}


@pytest.mark.one_of("lives of a broker")
def test_a_broker_that_dies_is_waited_for_by_who_reads(alone: Settings) -> None:
    letters(alone, COUNT)
    counts: list[int] = []
    is_back = threading.Event()

    def read() -> None:
        while not is_back.is_set():
            there = kafka.read_to_end(
                installed(alone).kafka, TopicPartition(alone.topic("dead-letters"), 0)
            )
            counts.append(sum(1 for _ in there))

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read) for _ in range(4)]
        try:
            wait_for(lambda: len(counts) > 4, "some reads")
            kill_broker(alone)
            broker.start(alone)
            enough = len(counts) + 4
            wait_for(lambda: len(counts) > enough or any(r.done() for r in reading), "more reads")
        finally:
            is_back.set()
    assert [one.exception() for one in reading] == [None] * 4
    assert set(counts) == {COUNT}


@pytest.mark.one_of("lives of a broker")
def test_after_the_cleaner_came_what_was_dealt_with_is_gone(alone: Settings) -> None:
    eager = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "1000",
        "delete.retention.ms": "0",
        "min.cleanable.dirty.ratio": "0.01",
    }
    configure_topic(alone, alone.topic("dead-letters"), eager)
    configure_broker(alone, {"log.cleaner.backoff.ms": "500"})
    letters(alone, 200)
    assert total(sweep(alone, LATER)) == {"retried": 200}
    waits = failed(alone, original(999, b"waits"))

    def cleaned() -> bool:
        time.sleep(1)
        put(alone, [waits])  # the segment that is written to is never cleaned: so begin another
        return {r.key for r in committed(alone, alone.topic("dead-letters"))} == {waits.key}

    wait_for(cleaned, "the cleaner", seconds=120)
    assert set(live(alone, alone.topic("dead-letters"))) == {b"positions-0-999"}
    assert total(sweep(alone, datetime.now(UTC))) == {"waiting": 1}
    assert len(seen(alone)) == 200


def commit_on(settings: Settings, gone: threading.Event, writer: int, done: Counter[int]) -> None:
    """Commit small transactions over all partitions until Kafka is gone."""
    producer = installed(settings).kafka.transactional_producer(f"writer/{writer}")
    producer.init_transactions(30)
    try:
        while True:
            producer.begin_transaction()
            for topic, count in TOPICS.items():
                for partition in range(count):
                    producer.produce(topic, b"value", b"key", partition)
            producer.commit_transaction(2)
            done[writer] += 1
    except KafkaException:
        assert gone.is_set()


def open_partitions(settings: Settings) -> list[tuple[str, int]]:
    every = offsets.watermarks(installed(settings).kafka, TOPICS, committed=False)
    stable = offsets.watermarks(installed(settings).kafka, TOPICS, committed=True)
    places = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
    return [(t, p) for t, p in places if every[t][p] != stable[t][p]]


@pytest.mark.one_of("lives of a broker")
def test_every_transaction_ends_though_the_broker_was_killed_amid_many(alone: Settings) -> None:
    """Kafka 4.3.1 fails this about every third time (docs/decisions/0015)."""
    gone, done = threading.Event(), Counter[int]()
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(commit_on, alone, gone, n, done) for n in range(WRITERS)]
        wait_for(lambda: len(done) == WRITERS and min(done.values()) > 5, "some commits")
        gone.set()
        kill_broker(alone)
        broker.start(alone)
        for writer in range(WRITERS):
            installed(alone).kafka.transactional_producer(f"writer/{writer}").init_transactions(60)
    assert [one.exception() for one in writing] == [None] * WRITERS
    wait_for(lambda: open_partitions(alone) == [], "the end of all transactions", seconds=60)
