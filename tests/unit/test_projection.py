"""Projections go on where they stood, and are read anew where that is no beginning of the topic."""

import itertools
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from shardpost import projection
from shardpost.errors import ShardpostError
from shardpost.kafka.records import Record, TopicPartition
from shardpost.projection import Form, Projections, remove
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka

PLACE = TopicPartition("numbers", 0)
folded: list[int] = []


def fold(database: sqlite3.Connection, records: Sequence[Record]) -> None:
    folded.extend(record.offset for record in records)
    rows = ((record.key, int(record.value or b"0")) for record in records)
    database.executemany(
        "INSERT INTO sums VALUES (?, ?) ON CONFLICT DO UPDATE SET total = total + excluded.total",
        rows,
    )


FORM = Form("sums", ["sums (key BLOB PRIMARY KEY, total INTEGER)"], fold)


@pytest.fixture(autouse=True)
def _nothing_folded() -> None:
    folded.clear()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryKafka]:
    monkeypatch.setattr(projection, "ROWS", 2)
    clock = itertools.count(1)
    with memory_kafka(lambda: next(clock)) as made:
        made.broker.create_topic("numbers", 1, {})
        yield made


def put(kafka: MemoryKafka, *numbers: int, key: bytes = b"k") -> None:
    client = installed(kafka.settings).kafka.producer()
    for number in numbers:
        client.produce("numbers", b"%d" % number, key, 0)
    client.flush()


def projections(kafka: MemoryKafka, form: Form = FORM) -> Projections:
    own = installed(kafka.settings)
    return Projections(own.kafka, own.files, form, [PLACE])


def sums(kafka: MemoryKafka, form: Form = FORM) -> dict[bytes, int]:
    with projections(kafka, form).open(PLACE) as database:
        return dict(database.execute("SELECT key, total FROM sums"))


def file_of(kafka: MemoryKafka) -> Path:
    [found] = (kafka.settings.home / projection.FOLDER).glob("*/sums-numbers-0-*.sqlite")
    return found


def test_it_goes_on_where_it_stood(kafka: MemoryKafka) -> None:
    assert sums(kafka) == {}
    put(kafka, 1, 2, 3)
    assert projections(kafka).unread() == 3
    assert sums(kafka) == {b"k": 6}
    assert projections(kafka).unread() == 0
    put(kafka, 4)
    assert projections(kafka).unread() == 1
    assert sums(kafka) == {b"k": 10}
    assert folded == [0, 1, 2, 3]


def test_another_form_is_read_anew(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2)
    sums(kafka)
    assert sums(kafka, replace(FORM, made_by="other rules")) == {b"k": 3}
    assert folded == [0, 1] * 2


def test_a_topic_that_was_recreated_or_cut_is_read_anew(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2, 3)
    sums(kafka)
    kafka.broker.delete_topic("numbers")
    kafka.broker.create_topic("numbers", 1, {})
    put(kafka, 5, 6, 7)
    assert sums(kafka) == {b"k": 18}
    cut(kafka, 1)
    assert sums(kafka) == {b"k": 5}


def cut(kafka: MemoryKafka, offset: int) -> None:
    """Lose what a partition has from an offset on, as an unclean election of a leader does."""
    log = kafka.broker.log(PLACE)
    del log.entries[offset:]
    log.end = offset


@pytest.mark.parametrize("more", [(7,), (7, 8), (7, 8, 9)])
def test_a_topic_that_was_cut_and_has_grown_again_is_read_anew(
    kafka: MemoryKafka, more: tuple[int, ...]
) -> None:
    put(kafka, 1, 2, 3)
    sums(kafka)
    cut(kafka, 2)
    put(kafka, *more)
    assert sums(kafka) == {b"k": 3 + sum(more)}


def test_where_the_cleaner_or_the_retention_took_its_last_record_it_is_read_anew(
    kafka: MemoryKafka,
) -> None:
    put(kafka, 1, 2)
    sums(kafka)
    put(kafka, 3, 4)
    put(kafka, 5, key=b"other")
    kafka.broker.log(PLACE).compact()
    assert sums(kafka) == {b"k": 4, b"other": 5}
    kafka.broker.log(PLACE).delete_before(5)
    put(kafka, 6)
    assert sums(kafka) == {b"k": 6}


def test_one_that_another_process_has_read_on_is_not_read_anew(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2)
    earlier = projections(kafka)
    put(kafka, 3, 4)
    assert sums(kafka) == {b"k": 10}
    with earlier.open(PLACE) as database:
        assert database.execute("SELECT total FROM sums").fetchall() == [(10,)]
    assert folded == [0, 1, 2, 3]


def test_processes_of_other_settings_do_not_disturb_each_other(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2)
    other = replace(FORM, made_by="other rules")
    for _ in range(2):
        assert sums(kafka) == sums(kafka, other) == {b"k": 3}
    assert folded == [0, 1] * 2


def test_records_that_change_each_time_are_an_error(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kafka, 1, 2)
    sums(kafka)
    monkeypatch.setattr(Projections, "_is_valid", lambda *_: False)
    with pytest.raises(ShardpostError, match=r"expected unchanged records, .*: run it again$"):
        sums(kafka)


def test_an_old_one_is_read_anew(kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    put(kafka, 1, 2)
    assert sums(kafka) == {b"k": 3}
    kafka.broker.log(PLACE).delete_before(1)
    assert sums(kafka) == {b"k": 3}
    now = time.time()
    for later in (timedelta(days=2), timedelta(days=-2)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later.total_seconds())
        assert sums(kafka) == {b"k": 2}


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_file_that_is_none_is_read_anew(kafka: MemoryKafka, content: bytes) -> None:
    put(kafka, 1, 2)
    sums(kafka)
    file_of(kafka).write_bytes(content)
    assert sums(kafka) == {b"k": 3}


def test_damage_within_is_named_and_the_next_one_reads_anew(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2)
    sums(kafka)
    path = file_of(kafka)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(ShardpostError, match=r"was damaged .*: run it again$"):
        sums(kafka)
    assert sums(kafka) == {b"k": 3}


def test_a_fold_that_fails_changes_nothing(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2)
    sums(kafka)

    def failing(database: sqlite3.Connection, records: Sequence[Record]) -> None:
        fold(database, records)
        raise ValueError

    put(kafka, 3)
    with pytest.raises(ValueError, match=r"^$"):
        sums(kafka, replace(FORM, fold=failing))
    assert sums(kafka) == {b"k": 6}


def test_where_the_home_cannot_be_written_it_is_a_temporary_file(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    put(kafka, 1, 2)
    assert sums(kafka) == sums(kafka) == {b"k": 3}
    assert not [*kafka.settings.home.rglob("*.sqlite")]


def test_two_at_once_fold_each_record_once(kafka: MemoryKafka) -> None:
    put(kafka, *range(100))
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(5):
                assert sums(kafka)[b"k"] >= sum(range(100))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    put(kafka, *range(100, 150))
    for thread in threads:
        thread.join()
    assert not errors
    assert sums(kafka) == {b"k": sum(range(150))}


def test_what_is_no_longer_valid_of_other_boots_and_settings_is_removed(kafka: MemoryKafka) -> None:
    put(kafka, 1, 2)
    sums(kafka, replace(FORM, made_by="other rules"))
    [file] = [file_of(kafka)]
    other = file.parent.with_name("earlier") / file.name
    other.parent.mkdir()
    shutil.copy(file, other)
    sums(kafka, replace(FORM, made_by="more rules"))
    assert file.exists()
    assert other.exists()
    for old in (file, other):
        os.utime(old, (0, 0))
    sums(kafka)
    assert not file.exists()
    assert not other.exists()


def test_what_is_removed_is_in_no_file_of_this_machine(kafka: MemoryKafka) -> None:
    put(kafka, 1, key=b"a-name-that-goes")
    sums(kafka)
    file = file_of(kafka)
    other = file.parent.with_name("earlier") / file.name
    other.parent.mkdir()
    shutil.copy(file, other)
    damaged = other.with_name(file.name.replace(".sqlite", "0.sqlite"))
    damaged.write_bytes(b"a-name-that-goes" * 100)
    own = installed(kafka.settings)
    remove(own.files, FORM, PLACE)
    for path in kafka.settings.home.rglob("*.sqlite*"):
        assert b"a-name-that-goes" not in path.read_bytes()
    assert sums(kafka) == {b"a-name-that-goes": 1}
