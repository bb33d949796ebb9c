"""What a compaction reads of its topics, and what it refuses, on a Kafka in memory."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from shardpost import waiting
from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER, Counts, Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders import inputs
from shardpost.holders.compaction import RECREATED
from shardpost.holders.inputs import Inputs
from shardpost.holders.model.topic_state import TopicState, Unread, UnreadableRecordsError
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.records import OffsetRange
from shardpost.kafka.topic_metadata import RecreatedTopicError, require_same_topics
from shardpost.rebuilds.spark.histories import held_now, not_held
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.transactions import begun_transaction

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(days=3)
COMPACT = {"cleanup.policy": "compact"}
INPUTS = ("positions", "clients", "exchanges")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with memory_kafka(home=tmp_path) as made:
        for topic in INPUTS:
            made.broker.create_topic(topic, 2, COMPACT)
        made.broker.create_topic("retries", 1, {})
        made.broker.create_topic("share-holders", 2, COMPACT)
        yield made


def put(kafka: MemoryKafka, topic: str, count: int, partition: int = 0) -> None:
    producer = installed(kafka.settings).kafka.producer()
    for number in range(count):
        producer.produce(topic, b"{}", str(number), partition)
    assert producer.flush(10) == 0


def look(kafka: MemoryKafka, last: Snapshot | None, *, reconcile: bool = False) -> Unread:
    return Inputs(installed(kafka.settings)).unread(look_of(kafka, last, reconcile=reconcile))


def look_of(kafka: MemoryKafka, last: Snapshot | None, *, reconcile: bool = False) -> TopicState:
    return Inputs(installed(kafka.settings)).look(NOW, last, reconcile=reconcile)


def noted(kafka: MemoryKafka, last: Snapshot) -> Snapshot:
    """Return the snapshot after a run that found nothing new."""
    found = look(kafka, last)
    assert found.ranges == []
    return look_of(kafka, last).noted(last, found, Rule("US"))


def snapshot_of(kafka: MemoryKafka, unread: Unread, **more: object) -> Snapshot:
    """Return the snapshot that a run leaves that read all of it."""
    known = {"topic_ids": look_of(kafka, None).ids, "generations": unread.generations} | more
    made = Snapshot(
        *(1, EARLIER, EARLIER, unread.ends, {}, Counts(), Rule("US"), 2, "test", "test")
    )
    return replace(made, **known)  # type: ignore[arg-type]


def after(kafka: MemoryKafka, topic: str = "positions", count: int = 0, **more: object) -> Snapshot:
    """Return the snapshot of a run that has read so many new records, and all else."""
    put(kafka, topic, count)
    return snapshot_of(kafka, look(kafka, None), **more)


def recreate(kafka: MemoryKafka, topic: str, count: int = 0) -> None:
    """Delete a topic, and create it anew with so many records."""
    partitions = len(kafka.broker.topics[topic].logs)
    kafka.broker.delete_topic(topic)
    kafka.broker.create_topic(topic, partitions, {} if topic == "retries" else COMPACT)
    put(kafka, topic, count)


def test_a_recreated_input_is_refused_by_name_and_id_though_it_is_longer_than_before(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka, count=3)
    before = last.topic_ids["positions"]
    recreate(kafka, "positions", 9)
    with pytest.raises(ShardpostError) as refused:
        look(kafka, last)
    assert refused.value.exit_code == 1
    said = str(refused.value)
    assert f"topic positions: expected the id {before}, found " in said
    assert "Run `shardpost compact --reconcile`" in said


def test_a_reconciliation_reads_a_recreated_input_from_its_beginning_as_a_new_generation(
    kafka: MemoryKafka,
) -> None:
    put(kafka, "positions", 3)
    last = after(kafka, "clients", 2)
    recreate(kafka, "positions", 9)
    put(kafka, "clients", 1)
    found = look(kafka, last, reconcile=True)
    assert found.ranges == [
        OffsetRange("positions", 0, 0, 9),
        OffsetRange("clients", 0, 2, 3),
    ]
    assert found.generations == {"positions": 1}
    assert found.reconciliation
    assert found.reconciliation.visible == [
        OffsetRange("positions", 0, 0, 9),
        OffsetRange("clients", 0, 0, 3),
    ]
    # What a recreated topic lacks was open until the last look. A lost tombstone is at least as old
    # as its retention.
    assert found.reconciliation.closes_at["positions"] == EARLIER
    assert look(kafka, snapshot_of(kafka, found)).ranges == []
    again = snapshot_of(kafka, found)
    recreate(kafka, "positions", 1)
    assert look(kafka, again, reconcile=True).generations == {"positions": 2}


def test_what_lost_its_tombstone_was_closed_before_the_retention_of_tombstones(
    kafka: MemoryKafka,
) -> None:
    for_ever = COMPACT | {"delete.retention.ms": str(2**63 - 1)}
    kafka.broker.topics["clients"].config = for_ever
    last = replace(after(kafka), looked_at=NOW - timedelta(minutes=1))
    found = look(kafka, last, reconcile=True)
    assert found.reconciliation
    closes_at = found.reconciliation.closes_at
    assert closes_at["positions"] == closes_at["exchanges"] == NOW - timedelta(days=1)
    assert closes_at["clients"] < NOW - timedelta(days=30_000)


def test_where_the_last_look_is_unknown_the_last_commit_counts(kafka: MemoryKafka) -> None:
    put(kafka, "positions", 3)
    last = replace(after(kafka), looked_at=NEVER)
    recreate(kafka, "positions", 1)
    for committed_at, closes_at in ((EARLIER, EARLIER), (NOW + timedelta(days=8), NOW)):
        found = look(kafka, replace(last, committed_at=committed_at), reconcile=True)
        assert found.reconciliation
        assert found.reconciliation.closes_at["positions"] == closes_at


def test_an_input_that_is_shorter_than_what_was_read_of_it_is_a_new_generation_too(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka, count=3, topic_ids={})  # by a version that knew no ids
    recreate(kafka, "positions", 2)
    with pytest.raises(ShardpostError, match=r"positions\[0\]: read up to 3, but it ends at 2"):
        look(kafka, last)
    found = look(kafka, last, reconcile=True)
    assert found.ranges == [OffsetRange("positions", 0, 0, 2)]
    assert found.generations == {"positions": 1}


def test_ids_that_were_not_known_are_taken_as_they_are(kafka: MemoryKafka) -> None:
    last = after(kafka, count=3, topic_ids={})
    assert {*noted(kafka, last).topic_ids} == {*INPUTS, "retries"}


def test_an_id_is_kept_where_kafka_gives_none_and_no_earlier_look_is_noted(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = NOW + timedelta(minutes=1)
    last = after(kafka, topic_ids={"positions": "it's id", "gone": "another"}, looked_at=later)
    monkeypatch.setattr(inputs, "topic_ids", lambda *_: {})
    seen = noted(kafka, last)
    assert (seen.topic_ids, seen.looked_at) == ({"positions": "it's id"}, later)


def test_deleted_records_are_refused_and_a_reconciliation_reads_what_is_left(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka)
    put(kafka, "positions", 9)
    kafka.broker.topics["positions"].logs[0].delete_before(4)
    with pytest.raises(ShardpostError, match=r"offsets 0 to 3 were deleted .* --reconcile"):
        look(kafka, last)
    found = look(kafka, last, reconcile=True)
    assert found.ranges == [OffsetRange("positions", 0, 4, 9)]
    assert found.generations == {}


def test_another_name_of_an_input_is_another_topic(kafka: MemoryKafka) -> None:
    last = after(kafka, count=3)
    kafka.broker.create_topic("mirror.positions", 2, COMPACT)
    put(kafka, "mirror.positions", 5)
    renamed = kafka.settings.model_copy(
        update={"topics": kafka.settings.topics | {"positions": "mirror.positions"}}
    )
    inputs_ = Inputs(installed(renamed))
    with pytest.raises(ShardpostError, match=r"topic mirror.positions was never read: snapshot 1"):
        inputs_.unread(inputs_.look(NOW, last))
    found = inputs_.unread(inputs_.look(NOW, last, reconcile=True))
    assert found.ranges == [OffsetRange("mirror.positions", 0, 0, 5)]
    assert found.generations == {"positions": 1}


def test_an_input_that_is_also_deleted_by_age_is_not_reconciled(kafka: MemoryKafka) -> None:
    last = after(kafka)
    kafka.broker.topics["clients"].config = {"cleanup.policy": "compact,delete"}
    with pytest.raises(ShardpostError, match=r"clients has cleanup.policy=compact,delete"):
        look(kafka, last, reconcile=True)
    assert look(kafka, last).ranges == []


def test_before_the_first_snapshot_there_is_nothing_to_reconcile(kafka: MemoryKafka) -> None:
    put(kafka, "positions", 3)
    assert look(kafka, None, reconcile=True).reconciliation is None


def test_a_recreated_retry_topic_is_read_from_its_beginning_and_stops_nothing(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka, "retries", 3)
    recreate(kafka, "retries", 5)
    found = look(kafka, last)
    assert found.ranges == [OffsetRange("retries", 0, 0, 5)]
    assert look(kafka, snapshot_of(kafka, found)).ranges == []


def test_a_rebuild_from_kafka_leaves_out_a_retry_topic_that_was_replaced_and_refuses_an_input(
    kafka: MemoryKafka,
) -> None:
    pinned = after(kafka, "retries", 3)
    assert {*held_now(installed(kafka.settings).kafka, pinned)} == {*INPUTS, "retries"}
    recreate(kafka, "retries", 5)
    held = held_now(installed(kafka.settings).kafka, pinned)
    assert {*held} == {*INPUTS}
    gone = not_held(pinned, held)
    assert gone == ("topic retries no longer exists, or was replaced",)
    recreate(kafka, "clients")
    with pytest.raises(RecreatedTopicError, match=r"topic clients: .* Rebuild from the history"):
        held_now(installed(kafka.settings).kafka, pinned)


def test_a_recreated_retry_topic_that_is_first_seen_empty_is_read_from_its_beginning(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka, "retries", 2)
    recreate(kafka, "retries")
    last = noted(kafka, last)
    assert last.end_offsets["retries"] == {0: 0}
    put(kafka, "retries", 5)
    assert look(kafka, last).ranges == [OffsetRange("retries", 0, 0, 5)]


def test_a_recreated_input_that_is_empty_is_not_reconciled(kafka: MemoryKafka) -> None:
    last = after(kafka, count=2)
    recreate(kafka, "positions")
    with pytest.raises(ShardpostError, match=r"^positions: .* empty: .* Nothing was changed"):
        look(kafka, last, reconcile=True)


@pytest.mark.parametrize("reconcile", [False, True])
def test_a_partition_that_kafka_does_not_show_of_the_same_topic_stops_the_run_for_now(
    kafka: MemoryKafka, *, reconcile: bool
) -> None:
    put(kafka, "positions", 2)
    found = look(kafka, None)
    last = snapshot_of(kafka, found)
    last = replace(last, end_offsets={**found.ends, "positions": {0: 2, 1: 0, 2: 4}})
    with pytest.raises(ShardpostError, match=r"positions\[2\] .* Run `shardpost compact` again"):
        look(kafka, last, reconcile=reconcile)


def test_a_topic_that_is_recreated_while_it_is_read_is_refused(kafka: MemoryKafka) -> None:
    ids = look_of(kafka, None).ids
    require_same_topics(installed(kafka.settings).kafka, ids, advice=RECREATED)
    recreate(kafka, "exchanges")
    with pytest.raises(RecreatedTopicError, match=r"topic exchanges: .* nothing was changed"):
        require_same_topics(installed(kafka.settings).kafka, ids, advice=RECREATED)


def test_what_is_to_be_read_is_counted_whatever_is_wrong_with_it(kafka: MemoryKafka) -> None:
    last = after(kafka, count=5)
    recreate(kafka, "positions", 3)
    assert Inputs(installed(kafka.settings)).unread_originals(last) == 0
    assert Inputs(installed(kafka.settings)).unread_originals(None) == 3


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no transaction."""
    monkeypatch.setattr(offsets, "STABLE_SECONDS", 0.0)


def begin(kafka: MemoryKafka, topic: str) -> Producer:
    """Open a transaction that has one record in partition 0."""
    writer = begun_transaction(kafka.settings, f"{topic}-writer")
    writer.produce(topic, b"{}", b"open", 0)
    writer.flush(10)
    return writer


@pytest.mark.usefixtures("impatient")
def test_what_is_behind_an_open_transaction_is_named_and_the_rest_is_read(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka)
    put(kafka, "positions", 2)
    writer = begin(kafka, "positions")
    put(kafka, "positions", 3)
    put(kafka, "clients", 1)
    found = look(kafka, last)
    assert found.ranges == [OffsetRange("positions", 0, 0, 2), OffsetRange("clients", 0, 0, 1)]
    [hidden] = found.open_transactions
    assert hidden.begins == ("positions", 0, 2)
    assert hidden.since is not None
    assert datetime.now(UTC) - hidden.since < timedelta(minutes=1)
    assert found.high["positions"] == {0: 6, 1: 0}
    writer.abort_transaction(10)
    assert look(kafka, snapshot_of(kafka, found)).open_transactions == []


def test_a_short_transaction_is_waited_for(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin(kafka, "positions")

    def end(_seconds: float) -> None:
        writer.commit_transaction(10)
        put(kafka, "positions", 1)
        begin(kafka, "positions")  # fences the one before: another one is open already

    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=end, monotonic=time.monotonic))
    found = look(kafka, None)
    assert found.open_transactions == []
    assert found.high["positions"][0] == 1
    assert found.ends["positions"][0] == 3


@pytest.mark.usefixtures("impatient")
def test_a_reconciliation_is_refused_while_an_input_has_an_open_transaction(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka)
    writer = begin(kafka, "clients")
    with pytest.raises(UnreadableRecordsError, match=r"clients\[0\]@0, since .* Nothing was") as no:
        look(kafka, last, reconcile=True)
    assert no.value.exit_code == 3
    writer.commit_transaction(10)
    begin(kafka, "retries")  # corrections may come later
    assert look(kafka, last, reconcile=True).reconciliation


def test_retry_topics_that_were_moved_are_read_on_as_long_as_they_exist(
    kafka: MemoryKafka,
) -> None:
    last = after(kafka, "retries", 2)
    put(kafka, "retries", 1)  # a correction
    kafka.broker.create_topic("r-own", 1, {})
    own = "; ".join(f"{topic}: topic=r-own" for topic in INPUTS)
    here = {"bootstrap_servers": kafka.settings.bootstrap, "home": kafka.settings.home}
    moved = Settings(**here, retry_origins=own)
    snapshots.commit(installed(moved).tables, last)
    _, found = Inputs(installed(moved)).state()
    assert found.ranges == [OffsetRange("retries", 0, 2, 3)]
    assert (set(found.ends), found.gone) == ({*INPUTS, "r-own", "retries"}, [])
    kafka.broker.delete_topic("retries")
    _, found = Inputs(installed(moved)).state()
    assert found.ranges == []
    assert found.gone == ["retries"]
    assert "retries" not in found.ends


def test_a_missing_topic_is_not_said_to_be_created_by_whom_does_not_create_it(
    kafka: MemoryKafka,
) -> None:
    with pytest.raises(ShardpostError, match="has no topic again: create it, or correct"):
        topic_metadata.partition_counts(installed(kafka.settings).kafka, ["positions", "again"])
    with pytest.raises(ShardpostError, match=r"create it \(`shardpost topics apply` creates parki"):
        topic_metadata.partition_counts(installed(kafka.settings).kafka, ["again", "parking-lot"])


def test_a_former_input_is_no_retry_topic(kafka: MemoryKafka) -> None:
    last = after(kafka)
    renamed = kafka.settings.model_copy(
        update={"topics": kafka.settings.topics | {"positions": "mirror.positions"}}
    )
    assert Inputs(installed(renamed)).former_retries(last) == []
