"""The consumer of docs/dead-letters.md, as it stands there, and records that are very large."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from shardpost.checkout import CHECKOUT
from shardpost.kafka.records import Header
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.broker_process import own_broker
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.letter_world import committed, header, live, sweep, total

KAFKAS_LIMIT = 1_048_588
BATCH = 70  # what a batch of one record takes besides key, value and headers
UNTIL_SILENT = "poll(2 if 'message' in globals() else 60)"  # the first one joins the group
LATER = datetime.now(UTC) + timedelta(days=30)  # when all are due, however long the tests take


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Give settings of a broker that nobody else uses, so that topics have their own names."""
    home = tmp_path_factory.mktemp("documented") / "home"
    with own_broker(home, partitions=2, retry_attempts=1) as settings:
        yield settings


@pytest.fixture
def alone(broker: Settings) -> Iterator[Settings]:
    """Give the same with all topics, which are empty."""
    apply_topics(installed(broker))
    create(broker, NewTopic("orders", 1, 1))
    yield broker
    client = installed(broker).kafka.admin()
    names = [name for name in client.list_topics(timeout=20).topics if not name.startswith("__")]
    for done in client.delete_topics(names).values():
        done.result(30)
    # Else the next test may be told of them, and create none.
    wait_for(lambda: not {*names} & {*client.list_topics(timeout=20).topics}, "the topics' end")


def create(settings: Settings, topic: NewTopic) -> None:
    client = installed(settings).kafka.admin()  # it has to outlive what it does
    client.create_topics([topic])[topic.topic].result(30)


def consume(settings: Settings, folder: Path, **changed: str) -> str:
    """Run the consumer until there is nothing more; return what it printed."""
    page = (CHECKOUT / "docs" / "dead-letters.md").read_text()
    found = re.search(r"cat > consumer.py <<'END'\n(.*?)\nEND\n", page, re.DOTALL)
    assert found
    program = found[1]
    for old, new in {"poll(10)": UNTIL_SILENT, **changed}.items():
        assert old in program
        program = program.replace(old, new)
    (folder / "consumer.py").write_text(program)
    run = [sys.executable, "consumer.py"]
    environ = os.environ | settings.environ() | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return without_times(done.stdout)


def without_times(text: str) -> str:
    """Return text with letter ids that have coordinates alone."""
    return re.sub(r"@\d+", "", text)


def put(settings: Settings, key: bytes, size: int, headers: list[Header]) -> bytes:
    """Produce a record of so many bytes that is no JSON; return its value."""
    own = sum(len(name) + len(value or b"") + 8 for name, value in headers)
    value = b"[" * (size - BATCH - len(key) - own)
    producer = Producer({"bootstrap.servers": settings.bootstrap, "message.max.bytes": size * 2})
    producer.produce("orders", key=key, value=value, headers=headers)
    assert producer.flush(30) == 0
    return value


@pytest.mark.one_of("records at Kafka's limit")
def test_a_record_of_kafkas_limit_with_long_headers_is_a_letter_a_retry_and_parked(
    alone: Settings, tmp_path: Path
) -> None:
    headers: list[Header] = [(f"h{n}", b"x" * 1_000) for n in range(60)]
    values = {
        "orders-0-0": put(alone, b"k" * 400_000, KAFKAS_LIMIT, headers),
        "orders-0-1": put(alone, b"k", KAFKAS_LIMIT, headers),
    }
    long = {'print("processed"': "raise ValueError('e' * 9_000); print(\"processed\""}
    said = "failed b'orders-0-0'\nfailed b'orders-0-1'\n"
    assert consume(alone, tmp_path, **long) == said
    letters = [*committed(alone, "dead-letters")]
    assert {header(letter, "headers-left-out") for letter in letters} == {"28"}
    assert {len(header(letter, "error") or "") for letter in letters} == {2_000}
    assert total(sweep(alone, LATER)) == {"retried": 2}
    assert {header(r, "attempt") for r in committed(alone, "retries")} == {"1"}
    assert consume(alone, tmp_path, **long) in (said, swapped(said))
    assert total(sweep(alone, LATER)) == {"parked": 2}
    parked = live(alone, "parking-lot")
    found = {without_times((key or b"").decode()): one.value for key, one in parked.items()}
    assert found == values


def swapped(lines: str) -> str:
    return "\n".join([*reversed(lines.splitlines()), ""])


@pytest.mark.one_of("records at Kafka's limit")
def test_a_record_too_large_for_any_letter_does_not_stop_the_consumer_and_is_parked(
    alone: Settings, tmp_path: Path
) -> None:
    create(alone, NewTopic("large", 1, 1, config={"max.message.bytes": "6000000"}))
    producer = Producer({"bootstrap.servers": alone.bootstrap, "message.max.bytes": 6_000_000})
    for value in (b"[" * 5_000_000, b"1"):
        producer.produce("large", value=value)
    assert producer.flush(30) == 0
    said = consume(alone, tmp_path, **{'["orders", "retries"]': '["large", "retries"]'})
    assert said.splitlines() == ["failed b'large-0-0'", "processed 1"]
    assert total(sweep(alone, LATER)) == {"parked": 1}
    [parked] = live(alone, "parking-lot").values()
    error = header(parked, "error") or ""
    assert parked.value == b""
    assert "its value was left out: expected a letter of at most 2097152 bytes" in error
    assert "RecursionError: maximum recursion depth exceeded" in error
    place = [header(parked, f"origin-{part}") for part in ("topic", "partition", "offset")]
    assert place == ["large", "0", "0"]
