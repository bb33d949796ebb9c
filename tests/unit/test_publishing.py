"""Publishing holders: lists that are too large, bounded transactions, kills; Kafka in memory."""

import json
import threading
from dataclasses import replace
from itertools import count
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaException

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders import holder_records, publishing, share_holders_topic
from shardpost.holders.model.published import Published, SnapshotRun
from shardpost.holders.publishing import Publication, publish
from shardpost.holders.share_holders_topic import PublishedPartition
from shardpost.kafka import records as kafka_records
from shardpost.kafka import topic_metadata, transactions
from shardpost.kafka.clients import KeptClients
from shardpost.kafka.records import (
    Header,
    Outgoing,
    PartitionMark,
    TopicPartition,
    batch_bytes,
    partition_of,
)
from shardpost.kafka.transactions import Transactions
from tests.support.at_step import dying
from tests.support.committed_snapshot import SHARDS, held, limit, published, records
from tests.support.histories import snapshot
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_kafka.producer import MemoryTransactionalProducer
from tests.support.transactions import begun_publication

IDS = [str(n) for n in range(1000)]


KAFKA = {"partitions": SHARDS}


def size_of(client: str, ids: list[str]) -> int:
    form = {"Client": client, "Positions": ids}
    value = json.dumps(form, separators=(",", ":"), ensure_ascii=False).encode()
    headers: list[Header] = [("snapshot", "1"), ("change", "upsert"), ("count", str(len(ids)))]
    return batch_bytes(Outgoing("", client.encode(), value, headers))


def test_headers_say_which_snapshot_which_change_and_how_many(kafka: MemoryKafka) -> None:
    limit(kafka, 2_000)
    view = held(kafka, 1, {"many": IDS, "few": ["1", "3"], "none": []})
    publish(installed(kafka.settings), view)
    publish(installed(kafka.settings), held(kafka, 2, {"few": [], "more": ["4"]}))
    found = {((one.key or b"").decode(), *one.headers) for one in records(kafka)}
    assert found == {
        ("many", ("snapshot", b"1"), ("change", b"upsert"), ("count", b"1000")),
        ("few", ("snapshot", b"1"), ("change", b"upsert"), ("count", b"2")),
        ("none", ("snapshot", b"1"), ("change", b"tombstone"), ("count", b"0")),
        ("few", ("snapshot", b"2"), ("change", b"tombstone"), ("count", b"0")),
        ("more", ("snapshot", b"2"), ("change", b"upsert"), ("count", b"1")),
    }


def test_a_list_that_is_too_large_is_published_as_its_length_and_named(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    limit(kafka, 2_000)
    view = held(kafka, 1, {"many": IDS, "few": ["1", "3"], "none": []})
    assert publish(installed(kafka.settings), view) == Publication(records=3, too_large=1)
    assert published(kafka) == {
        "many": {"Positions": None, "Count": 1000},
        "few": {"Positions": ["1", "3"]},
    }
    assert "client many: its list of 1000 positions is too large for a record of 2000" in (
        caplog.text
    )
    assert publish(installed(kafka.settings), view) == Publication()


@pytest.mark.parametrize(("less", "too_large"), [(0, 0), (1, 1)])
def test_a_list_is_whole_up_to_the_bytes_that_its_topic_accepts(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, less: int, too_large: int
) -> None:
    monkeypatch.setattr(holder_records, "IDS_AT_ONCE", 7)
    ids = [*IDS, 'a"b\\', "größe", "\x00"]
    limit(kafka, size_of("client", ids) - less)
    done = publish(installed(kafka.settings), held(kafka, 1, {"client": ids}))
    assert done == Publication(1, too_large)
    assert published(kafka)["client"]["Positions"] == (None if too_large else ids)


def test_a_client_whose_id_alone_is_too_large_is_named_and_stops_nobody(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    limit(kafka, 2_000)
    long = "\x1b" + "x" * 3_000
    other = next(f"c{n}" for n in range(99) if partition_of(f"c{n}", 2) == partition_of(long, 2))
    done = publish(installed(kafka.settings), held(kafka, 1, {long: ["1"], other: ["2"]}))
    assert done == Publication(1, 1)
    assert published(kafka) == {other: {"Positions": ["2"]}}
    assert "not published" in caplog.text
    assert "\x1b" not in caplog.text
    assert len(caplog.text) < 2_000


def test_once_larger_records_are_accepted_the_next_compaction_publishes_whole_lists(
    kafka: MemoryKafka,
) -> None:
    limit(kafka, 2_000)
    holders = {"many": IDS, "few": ["1"]}
    publish(installed(kafka.settings), held(kafka, 1, holders))
    later = held(kafka, 2, holders | {"other": ["2"]}, many=1, few=1)
    assert publish(installed(kafka.settings), later) == Publication(1, 0)
    limit(kafka, 9_000)
    assert publish(installed(kafka.settings), later).too_large == 0
    assert published(kafka)["many"] == {"Positions": IDS}
    before = len(records(kafka))
    limit(kafka, 10_000)
    assert publish(installed(kafka.settings), later) == Publication()
    assert len(records(kafka)) == before


def test_a_client_whose_list_is_small_again_is_published_whole(kafka: MemoryKafka) -> None:
    limit(kafka, 2_000)
    publish(installed(kafka.settings), held(kafka, 1, {"many": IDS}))
    assert publish(installed(kafka.settings), held(kafka, 2, {"many": ["1"]})) == Publication(1, 0)
    assert published(kafka) == {"many": {"Positions": ["1"]}}


def many() -> dict[str, list[str]]:
    return {f"client{n}": [str(n)] for n in range(25)}


def test_no_transaction_holds_more_than_a_bounded_number_of_records_and_bytes(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    monkeypatch.setattr(kafka_records, "MAX_BATCH_BYTES", 5_000)
    holders = many() | {f"long{n}": IDS[:500] for n in range(6)}
    publish(installed(kafka.settings), held(kafka, 1, holders))
    topic = kafka.settings.topic("share-holders")
    for number in range(SHARDS):
        log = kafka.broker.log(TopicPartition(topic, number))
        in_transaction: dict[object, list[int]] = {}
        for entry in log.entries:
            if entry.stored is not None:
                in_transaction.setdefault(entry.transaction, []).append(entry.stored.size)
        assert len(in_transaction) > 2
        for sizes in in_transaction.values():
            assert len(sizes) <= 4
            assert sum(sizes) <= 5_000
    assert len(published(kafka)) == 31


@pytest.mark.parametrize("nth", [1, 3, 5])
def test_a_run_that_dies_between_two_transactions_is_made_whole_by_the_next(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    view = held(kafka, 1, many())
    with dying(publishing, "batch published", nth), pytest.raises(KeyboardInterrupt):
        publish(installed(kafka.settings), view)
    assert 0 < len(published(kafka)) < 25
    later = many() | {"client3": [], "client4": ["9"]}
    unchanged = {client: 1 for client in later if client not in ("client3", "client4")}
    publish(installed(kafka.settings), held(kafka, 2, later, **unchanged))
    assert published(kafka) == {c: {"Positions": ids} for c, ids in later.items() if ids}


def test_a_run_that_wakes_up_between_two_transactions_overwrites_nothing(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    before = held(kafka, 1, many())
    newer = {client: ["new"] for client in many()}
    woken: list[str] = []

    def overtaken(_: str) -> None:
        if not woken:
            woken.append("")
            publish(installed(kafka.settings), held(kafka, 2, newer))

    with (
        mock.patch.object(publishing, "step", overtaken),
        pytest.raises(
            ShardpostError, match="could not publish snapshot 1: fenced by a newer compaction"
        ),
    ):
        publish(installed(kafka.settings), before)
    assert published(kafka) == {client: {"Positions": ["new"]} for client in newer}


def test_a_partition_that_cannot_be_published_is_named_and_stops_no_other(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = topic_metadata.topic_config(
        installed(kafka.settings).kafka, kafka.settings.topic("share-holders")
    )
    limit(kafka, 2_000)
    view = held(kafka, 1, {"many": IDS, **many()})
    bad, good = partition_of("many", 2), 1 - partition_of("many", 2)
    with monkeypatch.context() as patch:  # as if the limit was lowered just after it was read
        patch.setattr(topic_metadata, "topic_config", lambda *_: stale)
        with pytest.raises(ShardpostError, match=rf"\[{bad}\]: could not publish snapshot 1"):
            publish(installed(kafka.settings), view)
    assert set(published(kafka)) == {c for c in many() if partition_of(c, 2) == good}
    publish(installed(kafka.settings), view)
    assert published(kafka)["many"] == {"Positions": None, "Count": 1000}
    assert len(published(kafka)) == 26


@pytest.mark.parametrize("number", [11, 20, 21])
def test_after_tables_were_restored_from_a_backup_everything_is_published_again(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    publish(installed(kafka.settings), held(kafka, 20, {"a": ["1"], "b": ["2"], "c": ["3"]}))
    for kept in (10, 20)[: 1 + (number > 20)]:  # 20 was made anew, by another run
        view = snapshot(kept, {})
        snapshots.commit(installed(kafka.settings).tables, replace(view, run=f"another{kept}"))
    later = held(kafka, number, {"a": ["9"], "b": [], "c": ["3"]}, a=11, b=11, c=5)
    later = replace(later, run="another")
    assert publish(installed(kafka.settings), later) == Publication(3, 0)
    assert published(kafka) == {"a": {"Positions": ["9"]}, "c": {"Positions": ["3"]}}
    assert "snapshot 20 was published, but is not in these tables: publishing all again" in (
        caplog.text
    )
    assert publish(installed(kafka.settings), later) == Publication()


def test_a_run_that_begins_to_publish_after_a_newer_one_overwrites_nothing(
    kafka: MemoryKafka,
) -> None:
    before = held(kafka, 1, {"a": ["1"]})
    newer = replace(held(kafka, 2, {"a": ["2"]}), run="newer")
    snapshots.commit(installed(kafka.settings).tables, newer)
    publish(installed(kafka.settings), newer)
    assert publish(installed(kafka.settings), before) == Publication()
    assert published(kafka) == {"a": {"Positions": ["2"]}}


def test_what_a_newer_run_publishes_until_the_older_one_fences_it_is_known(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MAX_CONCURRENT", 1)  # the first partition is the client's
    client = next(name for name in "abcdef" if partition_of(name, SHARDS) == 0)
    older = replace(held(kafka, 1, {client: ["1"]}), run="older")
    snapshots.commit(installed(kafka.settings).tables, older)
    fence, is_late = Transactions.open, [True]

    def fence_late(writer: Transactions) -> None:
        if is_late:
            is_late.clear()
            newer = replace(held(kafka, 2, {client: ["2"]}), run="newer")
            snapshots.commit(installed(kafka.settings).tables, newer)
            publish(installed(kafka.settings), newer)
        fence(writer)

    monkeypatch.setattr(Transactions, "open", fence_late)
    publish(installed(kafka.settings), older)
    assert published(kafka) == {client: {"Positions": ["2"]}}


def openings(monkeypatch: pytest.MonkeyPatch) -> list[Transactions]:
    """Return the writers that are opened from now on."""
    fence, opened = Transactions.open, list[Transactions]()

    def noted(writer: Transactions) -> None:
        opened.append(writer)
        fence(writer)

    monkeypatch.setattr(Transactions, "open", noted)
    return opened


def test_writers_that_are_kept_open_publish_until_another_run_has(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = openings(monkeypatch)

    lists = {name: [[str(n)] for n in range(5)] for name in "abcdef"}

    def publish_next(number: int) -> None:
        view = replace(held(kafka, number, {c: of[number] for c, of in lists.items()}), run="one")
        snapshots.commit(installed(kafka.settings).tables, view)
        assert publish(installed(kafka.settings), view).records == len(lists)

    with installed(kafka.settings).kafka.writers.keeping():
        publish_next(1)
        publish_next(2)
        assert len(opened) == SHARDS
        with mock.patch.object(installed(kafka.settings).kafka, "writers", KeptClients(64)):
            publish_next(3)
        publish_next(4)
    assert published(kafka) == {client: {"Positions": of[4]} for client, of in lists.items()}
    fenced = {partition_of(client, SHARDS) for client in lists}
    assert len(opened) == 2 * SHARDS + len(fenced)


def test_what_a_kept_writer_would_overwrite_is_read_again(kafka: MemoryKafka) -> None:
    older = replace(held(kafka, 1, {"a": ["1"]}), run="older")
    snapshots.commit(installed(kafka.settings).tables, older)
    with installed(kafka.settings).kafka.writers.keeping():
        publish(installed(kafka.settings), older)
        newer = replace(held(kafka, 2, {"a": ["2"]}), run="newer")
        snapshots.commit(installed(kafka.settings).tables, newer)
        with mock.patch.object(installed(kafka.settings).kafka, "writers", KeptClients(64)):
            publish(installed(kafka.settings), newer)
        assert publish(installed(kafka.settings), older) == Publication()
    assert published(kafka) == {"a": {"Positions": ["2"]}}


def test_the_marker_of_a_kept_writer_that_is_yet_to_come_is_no_loss(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened, looks = openings(monkeypatch), count()
    ask = share_holders_topic.published_partitions

    def too_early(*asked: Any) -> list[PublishedPartition]:
        found = ask(*asked)
        is_early = next(looks) == 1  # the second look is that of the writers
        return [replace(one, wrong="its end") for one in found] if is_early else found

    clients = "abcdef"
    with installed(kafka.settings).kafka.writers.keeping():
        first = replace(held(kafka, 1, {key: ["1"] for key in clients}), run="one")
        snapshots.commit(installed(kafka.settings).tables, first)
        publish(installed(kafka.settings), first)
        monkeypatch.setattr(publishing, "published_partitions", too_early)
        second = replace(held(kafka, 2, {key: ["2"] for key in clients}), run="one")
        snapshots.commit(installed(kafka.settings).tables, second)
        assert publish(installed(kafka.settings), second).records == len(clients)
    assert published(kafka) == {key: {"Positions": ["2"]} for key in clients}
    assert len(opened) == 2 * SHARDS
    assert "publishing all again" not in caplog.text


def test_a_transaction_that_a_killed_run_left_open_is_not_waited_for(kafka: MemoryKafka) -> None:
    settings = kafka.settings.model_copy(update={"kafka_timeout": 0.5})
    killed = begun_publication(settings, 1)
    assert publish(installed(settings), held(kafka, 1, many())).records == len(many())
    assert published(kafka).keys() == many().keys()
    with pytest.raises(KafkaException):
        killed.commit_transaction()


def hanging(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the client never answer about an offset so many times, as if its coordinator was gone."""
    monkeypatch.setattr(transactions, "LATE_SECONDS", 0.2)
    send, left = MemoryTransactionalProducer.send_offsets_to_transaction, [*range(times)]

    def hang(*arguments: Any) -> None:
        if left:
            left.pop()
            threading.Event().wait()
        send(*arguments)

    monkeypatch.setattr(MemoryTransactionalProducer, "send_offsets_to_transaction", hang)


def test_where_the_client_never_answers_about_an_offset_a_new_one_publishes(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging(monkeypatch, 1)
    settings = kafka.settings.model_copy(update={"kafka_timeout": 1})
    view = held(kafka, 1, {"a": ["1"], "b": ["2"], "c": ["3"]})
    assert publish(installed(settings), view).records == 3
    assert published(kafka).keys() == {"a", "b", "c"}
    assert publish(installed(settings), view) == Publication()


def test_what_a_second_client_does_not_answer_either_is_left_to_the_next_compaction(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging(monkeypatch, 3 * SHARDS)
    settings = kafka.settings.model_copy(update={"kafka_timeout": 1})
    view = held(kafka, 1, {"a": ["1"], "b": ["2"], "c": ["3"]})
    with pytest.raises(ShardpostError, match="could not publish snapshot 1: Kafka did not answer"):
        publish(installed(settings), view)
    assert published(kafka) == {}


RUNS = {1: "one", 2: "two", 3: "three"}
AT = Published(SnapshotRun(2, "two"), None, low=10, end=20)
THERE = PartitionMark(10, 20)


@pytest.mark.parametrize(
    "published",
    [
        Published(),
        AT,
        Published(SnapshotRun(2, "two"), 1_000, 3, 4, SnapshotRun(3, "three")),
        Published(SnapshotRun(0), None, 3, 4, SnapshotRun(3, "three")),
    ],
)
def test_what_is_committed_is_read_again(published: Published) -> None:
    assert Published.of(published.as_metadata()) == published


def test_where_nothing_was_committed_nothing_is_published() -> None:
    assert Published.of(None) == Published.of("") == Published()


@pytest.mark.parametrize(
    "metadata", ["by anna", "[1]", "{}", '{"snapshot":"2"}', AT.as_metadata().replace("20", "1e9")]
)
def test_what_another_program_committed_is_no_publication(metadata: str) -> None:
    assert Published.of(metadata) == Published()


@pytest.mark.parametrize(
    ("runs", "now", "wrong"),
    [
        (RUNS, THERE, None),
        (RUNS, PartitionMark(10, 25), None),  # whose records those are is to be seen
        ({1: "one"}, THERE, "snapshot 2 was published, but is not in these tables"),
        (RUNS | {2: "other"}, THERE, "snapshot 2 was published, but is not in these tables"),
        (RUNS, PartitionMark(11, 20), "the records from 10 to 10 were deleted"),
        (RUNS, PartitionMark(10, 19), "it ends at offset 19, but ended at 20 before"),
    ],
)
def test_what_is_wrong_is_told(runs: dict[int, str], now: PartitionMark, wrong: str | None) -> None:
    assert AT.what_is_wrong(runs, now) == wrong


def test_a_part_of_a_snapshot_that_is_gone_is_wrong_and_of_one_that_is_there_is_not() -> None:
    partly = replace(AT, end=25, partly=SnapshotRun(3, "three"))
    assert partly.what_is_wrong(RUNS, PartitionMark(10, 25)) is None
    said = "a part of snapshot 3 was published, but is not in these tables"
    assert partly.what_is_wrong(RUNS | {3: "other"}, PartitionMark(10, 25)) == said
    whole = partly.then(SnapshotRun(3, "three"), 30, None)
    assert whole == Published(SnapshotRun(3, "three"), None, 10, 30)


def test_the_smallest_limit_that_a_list_was_too_large_for_is_kept() -> None:
    made = SnapshotRun(3, "three")
    first = AT.then(made, 30, 1_000)
    assert first.largest == 1_000
    assert first.then(made, 40, 2_000).largest == 1_000
    assert first.then(made, 40, None).largest == 1_000
    assert first.then(made, 40, 500).largest == 500
