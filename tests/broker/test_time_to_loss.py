"""The warning comes before the first lost record: twelve readers that never read on."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost.kafka.groups import groups
from shardpost.kafka.offsets import beginnings, endings
from shardpost.kafka.reading import BulkReading
from shardpost.kafka.records import OffsetRange, TopicPartition
from shardpost.lag.measure import measure
from shardpost.lag.model.time_to_loss import LagRow, Selection
from shardpost.settings import Settings
from tests.support.broker_process import commit, create, growing, put, quick_broker
from tests.support.how_far import up_to
from tests.support.installed import installed

SMALL = {"segment.ms": "500", "file.delete.delay.ms": "100"}
CONFIGS = {
    "time": SMALL | {"retention.ms": "15000"},
    "size": {"segment.ms": "1000", "retention.ms": "-1", "retention.bytes": "400000"},
    "tombstone": SMALL
    | {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "6000",
        "delete.retention.ms": "6000",
        "min.cleanable.dirty.ratio": "0.001",
    },
    "expiry": SMALL,
}
EXPIRY = "its offsets can expire"
KINDS = {
    "time": up_to(4, 2),
    "size": up_to(2, 1),
    "tombstone": up_to(2, 1),
    "expiry": up_to(4, 2),
}
BY_BROKERS_CLOCK = {f"time-{number}" for number in range(0, 4, 2)}
WITH_MEMBER = {f"expiry-{number}" for number in range(0, 4, 2)}
TOMBSTONE_AT = 3
LOOK_EVERY = up_to(2, 3)  # seconds
VALUE_BYTES = 3000


@dataclass
class Reader:
    """A group that stays at offset 0 of a topic of its own, and when what it lost was lost.

    `warnings` are the moments (ms) for which its loss was predicted, `lost` when it was seen.
    """

    kind: str
    group: str
    partition: TopicPartition
    warnings: list[float] = field(default_factory=list)
    lost: float | None = None


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    home: Path = tmp_path_factory.mktemp("quick") / "home"
    with quick_broker(home) as settings:
        yield settings


def now_ms() -> float:
    return 1000 * time.time()


def waiting_readers(settings: Settings) -> list[Reader]:
    """Return readers at offset 0 of topics of their own, which have a few records."""
    readers = [
        Reader(kind, f"{kind}-{number}", TopicPartition(f"{kind}-{number}", 0))
        for kind, count in KINDS.items()
        for number in range(count)
    ]
    create(settings, {one.group: config_of(one) for one in readers})
    before = [(f"first-{number}", "x") for number in range(TOMBSTONE_AT)]
    keys = [*before, ("closed", None), ("last", "x")]
    members = [one for one in readers if one.group in WITH_MEMBER]
    commit(settings, *((one.group, one.partition, 0) for one in readers if one not in members))
    put(settings, *((one.group, *record) for one in members for record in keys))
    for one in members:
        leave(settings, one.group, one.partition)
    # Last, since from then on the time of some of them runs.
    others = [one for one in readers if one not in members]
    put(settings, *((one.group, *record) for one in others for record in keys))
    return readers


def config_of(reader: Reader) -> dict[str, str]:
    if reader.group in BY_BROKERS_CLOCK:
        return CONFIGS[reader.kind] | {"message.timestamp.type": "LogAppendTime"}
    return CONFIGS[reader.kind]


def leave(settings: Settings, group: str, partition: TopicPartition) -> None:
    """Join a group, read a record, commit, and leave."""
    member = installed(settings).kafka.consumer(group, **{"auto.offset.reset": "earliest"})
    member.subscribe([partition.topic])
    deadline = time.monotonic() + 60
    while (message := member.poll(1)) is None or message.error():
        assert time.monotonic() < deadline, "the first record"
    member.commit(message=message, asynchronous=False)
    member.close()


def look(settings: Settings, waiting: list[Reader]) -> None:
    """Note what is predicted for each reader that has not lost anything yet."""
    named = Selection([reader.group for reader in waiting])
    at = datetime.now(UTC)
    found = {row.group: row for row in measure(installed(settings), at, named).rows}
    for reader in waiting:
        row = found.get(reader.group)
        if row is not None and row.seconds_to_loss is not None and is_warning(reader, row):
            reader.warnings.append(1000 * (at.timestamp() + row.seconds_to_loss))


def is_warning(reader: Reader, row: LagRow) -> bool:
    """Tell whether it foretells the loss that the reader waits for, and not one that has been."""
    return row.reason.startswith(EXPIRY if reader.kind == "expiry" else "loses data")


def note_losses(settings: Settings, waiting: list[Reader]) -> None:
    partitions = [reader.partition for reader in waiting]
    lows = beginnings(installed(settings).kafka, partitions).found
    tombstones = [reader.partition for reader in waiting if reader.kind == "tombstone"]
    there = with_tombstone(settings, tombstones)
    known = {group.name for group in groups(installed(settings).kafka).groups if group.committed}
    seen = now_ms()
    for reader in waiting:
        is_lost = {
            "tombstone": reader.partition not in there,
            "expiry": reader.group not in known,
        }.get(reader.kind, lows[reader.partition].offset > 0)
        if is_lost:
            reader.lost = seen


def with_tombstone(
    settings: Settings, partitions: list[TopicPartition]
) -> set[tuple[str | None, int | None]]:
    highs = endings(installed(settings).kafka, partitions, committed=False).found
    ranges = [OffsetRange(*one, 0, TOMBSTONE_AT + 1) for one in partitions]
    assert all(highs[one].offset > TOMBSTONE_AT for one in partitions)
    reading = BulkReading(installed(settings).kafka, ranges, committed=True, most=100)
    return {
        (message.topic(), message.partition())
        for message in reading.messages(time.monotonic() + 20)
        if message.offset() == TOMBSTONE_AT
    }


@pytest.mark.one_of("lives of a broker")
def test_every_loss_is_predicted_before_it_happens(quick: Settings) -> None:
    readers = waiting_readers(quick)
    growing_topics = [one.partition.topic for one in readers if one.kind in {"size", "tombstone"}]
    deadline = time.monotonic() + 200
    with growing(quick, growing_topics, VALUE_BYTES):
        while waiting := [reader for reader in readers if reader.lost is None]:
            assert time.monotonic() < deadline, waiting
            look(quick, waiting)
            note_losses(quick, waiting)
            time.sleep(LOOK_EVERY)
    assert len(readers) == up_to(12, 6)
    for reader in readers:
        assert reader.warnings, f"{reader.group} lost data without any warning"
        assert reader.lost is not None
        # Size is lost at the present growth, and that has only just begun at first.
        latest = reader.warnings[-1] if reader.kind == "size" else max(reader.warnings)
        assert latest <= reader.lost, reader
