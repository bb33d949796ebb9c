"""Publishing all again where a partition does not hold what was published; Kafka in memory."""

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.holders import publishing
from shardpost.holders.publishing import Publication, publish
from shardpost.kafka import records as kafka_records
from shardpost.kafka.records import TopicPartition, partition_of
from tests.support.at_step import dying
from tests.support.committed_snapshot import SHARDS, configure, held, limit, published, records
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_kafka.log import PartitionLog
from tests.support.transactions import begun_transaction

KAFKA = {"partitions": SHARDS}


Holders = dict[str, list[str]]


def made_by(
    run: str, kafka: MemoryKafka, number: int, holders: Holders, **changed: int
) -> Snapshot:
    return replace(held(kafka, number, holders, **changed), run=run)


def whole(holders: Holders) -> dict[str, object]:
    return {client: {"Positions": ids} for client, ids in holders.items() if ids}


def logs(kafka: MemoryKafka) -> list[PartitionLog]:
    topic = kafka.settings.topic("share-holders")
    return [kafka.broker.log(TopicPartition(topic, number)) for number in range(SHARDS)]


def cut(log: PartitionLog, end: int) -> None:
    """Lose the end of a log, as an unclean election of a leader does."""
    log.entries = [entry for entry in log.entries if entry.offset < end]
    log.end = end


def write(kafka: MemoryKafka, client: str, value: bytes | None) -> None:
    """Write to the topic as another program."""
    topic = kafka.settings.topic("share-holders")
    shard = partition_of(client, SHARDS)
    sender = installed(kafka.settings).kafka.producer()
    sender.produce(topic, key=client.encode(), value=value, partition=shard)
    assert sender.flush(5) == 0


def many(count: int = 25, ids: str = "1") -> Holders:
    return {f"client{n}": [ids] for n in range(count)}


def test_a_client_that_restored_tables_have_never_had_gets_a_tombstone(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    publish(installed(kafka.settings), held(kafka, 1, {"a": ["1"]}))
    publish(installed(kafka.settings), made_by("lost", kafka, 2, {"a": ["1"], "x": ["2"]}, a=1))
    assert "x" in published(kafka)
    again = made_by("again", kafka, 2, {"a": ["1"], "y": ["2"]}, a=1)
    assert publish(installed(kafka.settings), again) == Publication(3, 0)
    assert published(kafka) == whole({"a": ["1"], "y": ["2"]})
    assert "snapshot 2 was published, but is not in these tables: publishing all" in caplog.text
    assert publish(installed(kafka.settings), again) == Publication()


def test_also_where_no_client_holds_any_more(kafka: MemoryKafka) -> None:
    publish(installed(kafka.settings), made_by("lost", kafka, 2, many(3)))
    publish(installed(kafka.settings), made_by("again", kafka, 2, {}))
    assert published(kafka) == {}
    before = len(records(kafka))
    publish(installed(kafka.settings), made_by("again", kafka, 2, {}))
    assert len(records(kafka)) == before


# Of six transactions; beside the last one that is counted, the other partition may write another.
@pytest.mark.parametrize("nth", range(1, 5))
def test_killed_between_two_transactions_the_next_run_removes_the_rest(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    publish(installed(kafka.settings), made_by("lost", kafka, 2, many(20) | {"a": ["1"]}))
    holders = many(10, "9") | {"b": ["1"]}
    again = made_by("again", kafka, 2, holders)
    with dying(publishing, "batch published", nth), pytest.raises(KeyboardInterrupt):
        publish(installed(kafka.settings), again)
    assert published(kafka) != whole(holders)
    publish(installed(kafka.settings), again)
    assert published(kafka) == whole(holders)
    assert publish(installed(kafka.settings), again) == Publication()


def test_a_part_that_was_published_before_the_tables_were_restored_is_taken_back(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    kept = many(10)
    publish(installed(kafka.settings), held(kafka, 1, kept))
    lost = kept | {f"lost{n}": ["1"] for n in range(20)}
    with dying(publishing, "batch published"), pytest.raises(KeyboardInterrupt):
        publish(
            installed(kafka.settings), made_by("lost", kafka, 2, lost, **dict.fromkeys(kept, 1))
        )
    assert len(published(kafka)) > 10
    again = made_by("again", kafka, 2, kept | {"b": ["1"]}, **dict.fromkeys(kept, 1))
    publish(installed(kafka.settings), again)
    assert published(kafka) == whole(kept | {"b": ["1"]})
    assert "a part of snapshot 2 was published, but is not in these tables" in caplog.text


def test_where_kafka_has_forgotten_what_was_published_nobody_stays_who_is_not_there(
    kafka: MemoryKafka,
) -> None:
    publish(installed(kafka.settings), held(kafka, 1, {"a": ["1"], "x": ["2"]}))
    kafka.broker.coordinator.forget(kafka.settings.topic("share-holders"))
    publish(installed(kafka.settings), held(kafka, 2, {"a": ["1"]}))
    assert published(kafka) == whole({"a": ["1"]})


def test_a_key_that_is_too_large_by_now_stays_and_stops_nobody(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    publish(installed(kafka.settings), made_by("lost", kafka, 1, {"x" * 3_000: ["1"], "a": ["1"]}))
    limit(kafka, 2_000)
    publish(installed(kafka.settings), made_by("again", kafka, 1, {"b": ["1"]}))
    assert published(kafka).keys() == {"x" * 3_000, "b"}
    assert "a key of 3000 bytes is too large" in caplog.text


def test_records_that_kafka_deleted_are_published_again_once_also_with_nothing_new(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    view = held(kafka, 1, many())
    publish(installed(kafka.settings), view)
    log = logs(kafka)[0]
    log.delete_before(3)
    assert len(published(kafka)) == 22
    end = log.end
    in_shard = sum(partition_of(client, SHARDS) == 0 for client in many())
    assert publish(installed(kafka.settings), view) == Publication(in_shard, 0)
    assert published(kafka) == whole(many())
    assert "share-holders[0]: the records from 0 to 2 were deleted: publishing all" in caplog.text
    assert publish(installed(kafka.settings), view) == Publication()
    log.delete_before(end)  # what is below was published again: the rest of it is no loss
    assert publish(installed(kafka.settings), view) == Publication()
    log.delete_before(end + 1)
    assert publish(installed(kafka.settings), view) == Publication(in_shard, 0)
    assert published(kafka) == whole(many())


def test_a_partition_that_lost_its_end_is_published_again_once(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    view = held(kafka, 1, many())
    publish(installed(kafka.settings), view)
    log = logs(kafka)[1]
    end = log.end
    cut(log, end - 2)  # a record, and the marker of its transaction
    assert len(published(kafka)) == 24
    publish(installed(kafka.settings), view)
    assert published(kafka) == whole(many())
    assert (
        f"share-holders[1]: it ends at offset {end - 2}, but ended at {end} before: publishing"
        in caplog.text
    )
    assert publish(installed(kafka.settings), view) == Publication()


@pytest.mark.parametrize("value", [b'{"Client":"a","Positions":["7"]}', b"oops", b"", None])
@pytest.mark.parametrize("client", ["a", "nobody"])
def test_what_another_program_wrote_is_put_right_once(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture, client: str, value: bytes | None
) -> None:
    view = held(kafka, 1, {"a": ["1"], "b": ["2"]})
    publish(installed(kafka.settings), view)
    write(kafka, client, value)
    publish(installed(kafka.settings), view)
    assert published(kafka) == whole({"a": ["1"], "b": ["2"]})
    assert "another program has written to it" in caplog.text
    assert publish(installed(kafka.settings), view) == Publication()


def test_what_was_aborted_is_nobodys_record(kafka: MemoryKafka) -> None:
    view = held(kafka, 1, many())
    publish(installed(kafka.settings), view)
    sender = begun_transaction(kafka.settings, "other")
    sender.produce(kafka.settings.topic("share-holders"), b"{", b"a", 0)
    sender.flush(5)
    sender.abort_transaction()
    assert publish(installed(kafka.settings), view) == Publication()


def test_an_open_transaction_of_another_program_is_noticed_when_it_commits(
    kafka: MemoryKafka,
) -> None:
    publish(installed(kafka.settings), held(kafka, 1, many()))
    sender = begun_transaction(kafka.settings, "other")
    shard = partition_of("client3", SHARDS)
    sender.produce(kafka.settings.topic("share-holders"), b"{}", b"gone", shard)
    sender.flush(5)
    unchanged = dict.fromkeys(many().keys() - {"client3"}, 1)
    later = held(kafka, 2, many() | {"client3": ["9"]}, **unchanged)
    assert publish(installed(kafka.settings), later) == Publication(1, 0)
    sender.commit_transaction()
    publish(installed(kafka.settings), later)
    assert published(kafka) == whole(many() | {"client3": ["9"]})
    assert publish(installed(kafka.settings), later) == Publication()


def test_what_another_program_writes_between_two_transactions_is_put_right_by_the_next_run(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    view = held(kafka, 1, many())
    written: list[str] = []

    def step(_: str) -> None:
        if not written:
            written.append("nobody")
            write(kafka, "nobody", b"{}")

    monkeypatch.setattr(publishing, "step", step)
    publish(installed(kafka.settings), view)
    publish(installed(kafka.settings), view)
    assert published(kafka) == whole(many())
    assert publish(installed(kafka.settings), view) == Publication()


def test_an_older_run_leaves_a_loss_to_a_newer_one_that_has_published(kafka: MemoryKafka) -> None:
    before = held(kafka, 1, {"a": ["1"]})
    newer = made_by("newer", kafka, 2, {"a": ["2"]})
    snapshots.commit(installed(kafka.settings).tables, newer)
    publish(installed(kafka.settings), newer)
    for log in logs(kafka):
        log.delete_before(log.end)
    assert publish(installed(kafka.settings), before) == Publication()
    assert publish(installed(kafka.settings), newer) == Publication(1, 0)
    assert published(kafka) == whole({"a": ["2"]})


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_policy_by_which_kafka_deletes_is_told_by_name_and_all_is_published(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    configure(kafka, {"cleanup.policy": policy})
    view = held(kafka, 1, {"a": ["1"]})
    assert publish(installed(kafka.settings), view) == Publication(1, 0, is_compacted=False)
    assert not publish(installed(kafka.settings), view).is_compacted  # also with nothing new
    assert (
        f"topic share-holders: expected cleanup.policy=compact only, found '{policy}'"
    ) in caplog.text
    assert "--entity-name share-holders --add-config cleanup.policy=compact`" in caplog.text
    configure(kafka, {"cleanup.policy": "compact"})
    assert publish(installed(kafka.settings), view).is_compacted


@dataclass
class World:
    """Tables of which any older state may come back, and a topic to which anything may happen."""

    kafka: MemoryKafka
    drawn: random.Random
    runs: int = 0
    is_cut: bool = False
    # Each snapshot's {client: (ids, the snapshot that changed it)}, from 1 on.
    history: list[Mapping[str, tuple[list[str], int]]] = field(default_factory=list)
    made_by: list[str] = field(default_factory=list)

    def compact(self) -> None:
        number, before = len(self.history) + 1, dict(self.history[-1]) if self.history else {}
        for _ in range(self.drawn.choice([0, 1, 9])):
            client = f"c{self.drawn.randrange(15)}"
            ids = [str(self.drawn.randrange(9))] if self.drawn.random() < 0.6 else []
            if ids or client in before:
                before[client] = (ids, number)
        self.runs += 1
        self.history.append(before)
        self.made_by.append(f"run{self.runs}")

    def restore(self) -> None:
        kept = self.drawn.randint(1, len(self.history))
        del self.history[kept:], self.made_by[kept:]

    def lose(self) -> None:
        log = self.drawn.choice(logs(self.kafka))
        if self.drawn.random() < 0.5:
            log.delete_before(self.drawn.randint(log.low, log.end))
        else:
            cut(log, self.drawn.randint(log.low, log.end))
            self.is_cut = True

    def disturb(self) -> None:
        if self.is_cut:
            return  # an end that was lost, and is written over by others, is not noticed
        value = self.drawn.choice([None, b"{}"])
        write(self.kafka, f"c{self.drawn.randrange(20)}", value)

    def clean(self) -> None:
        for log in logs(self.kafka):
            log.compact()

    def publish(self) -> None:
        number = len(self.history)
        rows = self.history[-1]
        view = held(
            self.kafka,
            number,
            {client: ids for client, (ids, _) in rows.items()},
            **{client: changed for client, (_, changed) in rows.items()},
        )
        publish(installed(self.kafka.settings), replace(view, run=self.made_by[-1]))
        self.is_cut = False

    def publish_killed(self) -> None:
        batches = self.drawn.randint(1, 6)
        with dying(publishing, "batch published", batches), suppress(KeyboardInterrupt):
            self.publish()

    def holders(self) -> dict[str, object]:
        return whole({client: ids for client, (ids, _) in self.history[-1].items()})


@pytest.mark.parametrize("seed", some(range(40), 5))
def test_whatever_happened_the_topic_is_what_the_tables_are_after_the_next_publication(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 2)
    world = World(kafka, random.Random(seed))  # noqa: S311 - a test
    monkeypatch.setattr(publishing, "runs_of", lambda *_: dict(enumerate(world.made_by, 1)))
    world.compact()
    steps = [world.compact, world.restore, world.lose, world.disturb, world.clean]
    steps += [world.compact, world.publish_killed, world.publish_killed]
    for _ in range(6):
        for _ in range(world.drawn.randint(1, 4)):
            world.drawn.choice(steps)()
        world.publish()
        assert published(kafka) == world.holders()
    before = len(records(kafka))
    world.publish()
    assert len(records(kafka)) == before
