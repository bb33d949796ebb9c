"""A broker that a test has to itself: to kill, or one that soon deletes, cleans and forgets."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.cimpl import NewTopic

from shardpost.embedded import broker, daemons
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.records import TopicPartition
from shardpost.locks.process_identity import stat_of
from shardpost.settings import Settings, load
from shardpost.topics.creation import apply_topics
from tests.conftest import environ
from tests.support.installed import installed
from tests.support.job_process import wait_for

QUICK = """
log.retention.check.interval.ms=200
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=100
log.segment.delete.delay.ms=100
offsets.retention.minutes={expiry_minutes}
offsets.retention.check.interval.ms=500
"""
EACH_SECONDS = 0.1


@contextmanager
def own_broker(home: Path, **given: object) -> Iterator[Settings]:
    """Give settings of a broker that nobody else uses, with all topics."""
    settings = load(environ(home=home, kafka_port=daemons.choose_port(), kafka_timeout=30, **given))
    broker.start(settings)
    apply_topics(installed(settings))
    yield settings
    broker.stop(settings)


def kill_broker(settings: Settings) -> None:
    """SIGKILL the broker, and wait until its port is free."""
    pid = json.loads((settings.home / "kafka" / "kafka.pid").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stat_of(pid) is None, "the broker's end")
    wait_for(lambda: daemons.port_is_free(settings.kafka_port), "its port")


@contextmanager
def quick_broker(home: Path, *, expiry_minutes: int = 1) -> Iterator[Settings]:
    """Give settings of a broker that nobody else uses and that forgets quickly."""
    usual = broker.PROPERTIES
    quick = QUICK.lstrip().format(expiry_minutes=expiry_minutes)
    broker.PROPERTIES = usual.replace("offsets.retention.minutes=525600\n", quick)
    settings = load(environ(home=home, kafka_port=daemons.choose_port(), kafka_timeout=30))
    try:
        broker.start(settings)
        yield settings
    finally:
        broker.PROPERTIES = usual
        broker.stop(settings)


def create(settings: Settings, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Create topics of one partition with their settings, and return when they have leaders."""
    client = installed(settings).kafka.admin()  # it has to outlive what it asks for
    new = [NewTopic(name, 1, 1, config=dict(config)) for name, config in topics.items()]
    for done in client.create_topics(new).values():
        done.result(60)
    watermarks(installed(settings).kafka, dict.fromkeys(topics, 1), committed=True)


def commit(settings: Settings, *commits: tuple[str, TopicPartition, int]) -> None:
    """Commit offsets for groups that have no member, as soon as their coordinator is ready."""
    client = installed(settings).kafka.admin()
    deadline = time.monotonic() + 60
    left = list(commits)
    while left:
        assert time.monotonic() < deadline, left
        asked: list[tuple[tuple[str, TopicPartition, int], Future[Any]]] = []
        for one in left:
            at = [confluent_kafka.TopicPartition(*one[1], one[2])]
            request = [ConsumerGroupTopicPartitions(one[0], at)]
            [done] = client.alter_consumer_group_offsets(request).values()
            asked.append((one, done))
        left = [one for one, done in asked if done.result(60).topic_partitions[0].error]


def put(settings: Settings, *records: tuple[str, str, str | None]) -> None:
    """Write records (topic, key, value) to the one partition of their topics."""
    writer = installed(settings).kafka.producer()
    for topic, key, value in records:
        writer.produce(topic, None if value is None else value.encode(), key.encode(), 0)
    assert writer.flush(60) == 0


@contextmanager
def growing(settings: Settings, topics: list[str], size: int) -> Iterator[None]:
    """Write records of that many bytes to topics ten times a second, never two at once."""
    over = threading.Event()
    writer = Producer({"bootstrap.servers": settings.bootstrap, "linger.ms": 0})
    value = os.urandom(size)

    def write() -> None:
        number = 0
        while not over.wait(EACH_SECONDS):
            for topic in topics:
                writer.produce(topic, value, str(number), 0)
            number += 1
            writer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
