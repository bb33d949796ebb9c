"""Sending letters of rejected records in batches, killed between them; Kafka in memory."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.holders import rejected_letters
from shardpost.holders.model.published import HEADERS_BYTES, Place, place_ranges
from shardpost.holders.model.view_tables import REJECTED_RECORDS
from shardpost.kafka import records
from shardpost.kafka.records import Record, TopicPartition
from shardpost.kafka.transactions import FencedError
from shardpost.values.holding_rule import Rule
from tests.support.at_step import dying
from tests.support.histories import START, overwrite
from tests.support.histories import rejected_row as row
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.letter_world import at, header, live, sweep, total
from tests.support.memory_kafka import MemoryKafka

KAFKA = {"partitions": 1}


def rejected(number: int) -> list[dict[str, Any]]:
    """Return what a snapshot rejected, in no order."""
    offsets = range(10 * number, 10 * number + 5)
    topics = ("positions", "clients", "o'brien")
    return [
        row(t, n, number, partition=p) for n in reversed(offsets) for p in (1, 0) for t in topics
    ]


def committed(
    kafka: MemoryKafka, rows: list[dict[str, Any]], number: int = 0, run: str = "test"
) -> Snapshot:
    """Commit a snapshot with these rejected records: of their newest number, unless told."""
    number = number or max(one["snapshot"] for one in rows)
    version = overwrite(kafka.settings, REJECTED_RECORDS, rows)
    view = Snapshot(
        *(number, START, START, {}, {REJECTED_RECORDS.name: version}),
        *(Counts(rejected=len(rows)), Rule("US"), 1, "test", run),
    )
    snapshots.commit(installed(kafka.settings).tables, view)
    return view


Origin = tuple[str | None, ...]
ORIGIN = ("topic", "partition", "offset")


def origin(letter: Record) -> Origin:
    return tuple(header(letter, f"origin-{name}") for name in ORIGIN)


def letters(kafka: MemoryKafka) -> list[Origin]:
    """Return whose letters are in the store, one after the other."""
    found = kafka.committed(TopicPartition(kafka.settings.topic("dead-letters"), 0))
    assert len({letter.key for letter in found}) == len({origin(letter) for letter in found})
    return [origin(letter) for letter in found]


def origins(rows: list[dict[str, Any]]) -> list[Origin]:
    return [tuple(str(row[name]) for name in ORIGIN) for row in rows]


@pytest.mark.parametrize("nth", some([1, 2, 7, 8]))
@pytest.mark.parametrize("name", ["letters written", "letters committed"])
def test_killed_in_or_between_batches_each_letter_is_sent_once(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    view = committed(kafka, rejected(1))
    with dying(rejected_letters, name, nth), pytest.raises(KeyboardInterrupt):
        rejected_letters.send(installed(kafka.settings), view)
    sent = len(letters(kafka)) if name == "letters committed" else 4 * (nth - 1)
    assert sent == min(30, 4 * (nth - (name == "letters written")))
    later = committed(kafka, rejected(2) + rejected(1))  # a newer snapshot than that one
    assert rejected_letters.send(installed(kafka.settings), later) == 60 - sent
    assert Counter(letters(kafka)) == Counter(origins(rejected(1) + rejected(2)))
    assert rejected_letters.send(installed(kafka.settings), later) == 0


def test_killed_before_the_table_knows_what_was_sent_nothing_is_sent_again(
    kafka: MemoryKafka,
) -> None:
    with dying(rejected_letters, "letters sent"), pytest.raises(KeyboardInterrupt):
        rejected_letters.send(installed(kafka.settings), committed(kafka, rejected(1)))
    later = committed(kafka, rejected(1), number=2)
    assert rejected_letters.send(installed(kafka.settings), later) == 0
    assert len(letters(kafka)) == 30


def test_after_tables_were_restored_from_a_backup_letters_go_on_from_the_table_s_number(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    first = committed(kafka, rejected(1))
    rejected_letters.send(installed(kafka.settings), first)
    ahead = replace(first, number=20)  # what was sent before the tables were restored
    ahead_version = overwrite(kafka.settings, REJECTED_RECORDS, rejected(20))
    ahead = replace(ahead, tables={REJECTED_RECORDS.name: ahead_version})
    with dying(rejected_letters, "letters sent"), pytest.raises(KeyboardInterrupt):
        rejected_letters.send(installed(kafka.settings), ahead)
    later = committed(kafka, rejected(2) + rejected(1))
    assert rejected_letters.send(installed(kafka.settings), later) == 30
    assert letters(kafka)[60:] == sorted(origins(rejected(2)), key=lambda o: o)
    assert "letters of snapshot 20 were sent, but it is not in these tables" in caplog.text


@contextmanager
def older_tables(kafka: MemoryKafka, copy: Path) -> Iterator[None]:
    """Copy the tables, and put the copy in their place at the end."""
    tables = Path(kafka.settings.tables_root)
    shutil.copytree(tables, copy)
    yield
    shutil.rmtree(tables)
    shutil.copytree(copy, tables)


def test_in_restored_tables_a_snapshot_of_the_same_number_has_its_own_letters(
    kafka: MemoryKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = [row("positions", 1)]
    lost, new, later = (row("positions", n, min(n, 3)) for n in (2, 3, 4))
    new["snapshot"] = 2
    rejected_letters.send(installed(kafka.settings), committed(kafka, first))
    with older_tables(kafka, tmp_path / "copy"):
        rejected_letters.send(
            installed(kafka.settings), committed(kafka, [*first, lost], run="lost")
        )
    again = committed(kafka, [*first, lost, new], run="again")
    assert rejected_letters.send(installed(kafka.settings), again) == 2
    assert "letters of snapshot 2 were sent, but it is not in these tables" in caplog.text
    last = committed(kafka, [*first, lost, new, later], run="last")
    assert rejected_letters.send(installed(kafka.settings), last) == 1
    # The one that is sent twice is the same letter: a sweep drops it if it was resolved.
    assert letters(kafka) == origins([*first, lost, lost, new, later])
    assert rejected_letters.send(installed(kafka.settings), last) == 0


def test_in_restored_tables_a_place_within_a_snapshot_that_is_gone_counts_for_nothing(
    kafka: MemoryKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    rejected_letters.send(installed(kafka.settings), committed(kafka, rejected(1)))
    die = dying(rejected_letters, "letters committed", 2)
    with older_tables(kafka, tmp_path / "copy"), die, pytest.raises(KeyboardInterrupt):
        rejected_letters.send(
            installed(kafka.settings), committed(kafka, [*rejected(1), *rejected(2)])
        )
    before = row("clients", 0, 2)  # in order before all that were sent of the snapshot then
    again = committed(kafka, [*rejected(1), *rejected(2), before], run="again")
    assert rejected_letters.send(installed(kafka.settings), again) == 31
    assert set(letters(kafka)) == set(origins([*rejected(1), *rejected(2), before]))


def test_they_go_in_the_order_of_snapshots_and_coordinates(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 7)
    rejected_letters.send(installed(kafka.settings), committed(kafka, rejected(2) + rejected(1)))
    names = ("snapshot", "topic", "partition", "offset")
    ordered = sorted(rejected(2) + rejected(1), key=lambda one: [one[name] for name in names])
    assert letters(kafka) == origins(ordered)


def test_a_run_that_is_overtaken_between_two_batches_sends_nothing_twice(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    view = committed(kafka, rejected(1))
    newer: list[int] = []

    def overtaken(name: str) -> None:
        if name == "letters committed" and not newer:
            newer.append(0)
            newer[0] = rejected_letters.send(installed(kafka.settings), view)

    overtaking = mock.patch.object(rejected_letters, "step", overtaken)
    with overtaking, pytest.raises(FencedError, match="a newer compaction sends rejected records"):
        rejected_letters.send(installed(kafka.settings), view)
    assert newer == [26]
    assert Counter(letters(kafka)) == Counter(origins(rejected(1)))


@pytest.mark.parametrize("value", [b"x" * 5_000, b"{"])
def test_of_what_is_too_large_for_the_store_a_letter_without_value_is_parked(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    """Too large is the value, or the key, which the letter has as a header."""
    topic = kafka.settings.topic("dead-letters")
    config = dict(kafka.broker.topics[topic].config) | {"max.message.bytes": "3000"}
    kafka.broker.topics[topic].config = config
    key = b"k" * (1 if len(value) > 1 else 4_000)
    large = row("positions", 7, value=value, key=key, headers=[{"key": "a", "value": b"b"}])
    view = committed(kafka, [large, row("positions", 8)])
    assert rejected_letters.send(installed(kafka.settings), view) == 2
    assert "positions[0]@7: too large for a letter" in caplog.text
    assert total(sweep(kafka.settings, at(60))) == {"parked": 2}
    parked = live(kafka.settings, kafka.settings.topic("parking-lot")).values()
    [found] = [one for one in parked if origin(one) == ("positions", "0", "7")]
    assert found.value == b""
    error = header(found, "error") or ""
    assert error.startswith("malformed: its value was left out: expected a letter of at most 3000")
    assert error.endswith("; Undecodable: bad")


def test_a_range_has_a_bounded_number_of_records_and_bytes_or_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 3)
    monkeypatch.setattr(records, "MAX_BATCH_BYTES", 2 * HEADERS_BYTES)
    sizes = [(1, 0)] * 4 + [(9 * HEADERS_BYTES, 0)] + [(0, 1)] * 3
    found = place_ranges((Place(1, "t", 0, n), *size) for n, size in enumerate(sizes))
    ends = [(range_.first.offset, range_.last.offset, range_.is_last) for range_ in found]
    assert ends == [(0, 2, False), (3, 3, False), (4, 4, False), (5, 6, False), (7, 7, True)]
    assert list(place_ranges([])) == []
