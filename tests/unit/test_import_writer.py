"""Writing an import: bounded transactions, the decision in the last, and others beside it."""

from contextlib import closing
from datetime import UTC, datetime

import pytest

from shardpost.errors import ShardpostError
from shardpost.kafka import offsets, records
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Outgoing, Record
from shardpost.kafka.topic_configs import topic_config
from shardpost.kafka.transactions import FencedError, produce
from shardpost.position_import import run
from shardpost.position_import.model.import_ids import AppliedImport
from shardpost.position_import.run import ImportWriter, applied_import, record_of
from tests.support.at_step import at_step
from tests.support.memory_kafka import MemoryKafka

PARTITIONS = 3
KEYS = [str(n) for n in range(7)]
APPLIED = AppliedImport("c1", "c1", "Ann", datetime(2026, 11, 21, 12, tzinfo=UTC))


KAFKA = {"partitions": PARTITIONS}


def record(key: str, *, imported: bool = True) -> Outgoing:
    headers: list[tuple[str, str | bytes | None]] = [("import-id", b"c1")] if imported else []
    return Outgoing("positions", key.encode(), key.encode(), headers, partition_of(key, PARTITIONS))


def ends(kafka: MemoryKafka) -> dict[int, int]:
    found = offsets.watermarks(kafka.settings, {"positions": PARTITIONS}, committed=False)
    return {partition: high for partition, (_, high) in found["positions"].items()}


def written(kafka: MemoryKafka) -> list[Record]:
    return [
        one
        for number in range(PARTITIONS)
        for one in kafka.committed(TopicPartition("positions", number))
    ]


def write(kafka: MemoryKafka, keys: list[str], since: dict[int, int]) -> int:
    config = topic_config(kafka.settings, "positions")
    with closing(ImportWriter(kafka.settings, config)) as writer:
        writer.open()
        decided = record_of(kafka.settings, APPLIED, "a list")
        return writer.write(map(record, keys), decided, since)


def test_all_is_written_once_and_then_on_record(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 2)
    seen: list[AppliedImport | None] = []

    def look() -> None:
        seen.append(applied_import(kafka.settings, "c1"))

    monkeypatch.setattr(run, "step", lambda name: look() if "written" in name else None)
    assert write(kafka, KEYS, ends(kafka)) == 7
    assert sorted((one.key or b"").decode() for one in written(kafka)) == KEYS
    assert seen == [None, None, None, APPLIED]


def test_without_records_it_is_on_record_all_the_same(kafka: MemoryKafka) -> None:
    assert write(kafka, [], ends(kafka)) == 0
    assert applied_import(kafka.settings, "c1") == APPLIED
    assert applied_import(kafka.settings, "c2") is None


@pytest.mark.parametrize("key", KEYS)
def test_a_record_of_another_program_since_the_comparison_stops_it(
    kafka: MemoryKafka, key: str
) -> None:
    since = ends(kafka)
    at = produce(kafka.settings, record(key, imported=False))
    with pytest.raises(ShardpostError, match="since the list was compared; 0 records are") as error:
        write(kafka, ["0"], since)
    assert str(at) in str(error.value)
    assert len(written(kafka)) == 1
    assert applied_import(kafka.settings, "c1") is None


def test_between_two_transactions_it_stops_the_second(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    other = record("other", imported=False)
    at_step(monkeypatch, run)("import batch written", lambda: produce(kafka.settings, other))
    with pytest.raises(ShardpostError, match="4 records are written, the rest is not"):
        write(kafka, KEYS, ends(kafka))
    assert len(written(kafka)) == 5
    assert applied_import(kafka.settings, "c1") is None


def test_records_of_imports_that_were_aborted_stop_nothing(kafka: MemoryKafka) -> None:
    since = ends(kafka)
    produce(kafka.settings, record("0"))  # as an aborted one stands in the log
    assert write(kafka, KEYS[1:], since) == 6


def test_a_newer_import_fences_an_older_one(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    at_step(monkeypatch, run)("import batch written", lambda: write(kafka, ["new"], ends(kafka)))
    with pytest.raises(FencedError, match="another import into positions has taken over"):
        write(kafka, KEYS, ends(kafka))
    assert len(written(kafka)) == 5
