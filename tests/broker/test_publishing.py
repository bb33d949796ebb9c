"""Publishing very long lists to a real broker, and sending very many letters."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from shardpost.delta import snapshots, storage
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.embedded import broker
from shardpost.holders import rejected_letters
from shardpost.holders.holder_records import headers_of
from shardpost.holders.model.view_tables import REJECTED_RECORDS, SHARE_HOLDERS
from shardpost.holders.publishing import Publication, publish
from shardpost.kafka import records, transactions
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition, batch_bytes
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.at_step import dying
from tests.support.broker_process import own_broker
from tests.support.histories import overwrite, rejected_row, snapshot
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import committed, header
from tests.support.transactions import begun_publication, begun_transaction


@pytest.fixture
def ready(settings: Settings) -> Settings:
    made = settings.model_copy(update={"partitions": 1})
    apply_topics(installed(made))
    return made


def test_with_the_longest_timeout_it_is_published_too(ready: Settings) -> None:
    patient = ready.model_copy(update={"kafka_timeout": 1800.0})
    view = held(patient, 1, {"client": pa.array([1, 2])})
    assert publish(installed(patient), view).records == 1


def held(settings: Settings, number: int, holders: dict[str, pa.Array]) -> Snapshot:
    """Write holders of shard 0, whose ids are not in Python; return their snapshot."""
    lists = pa.concat_arrays([ids.cast(pa.string()) for ids in holders.values()])
    ends = [0]
    for ids in holders.values():
        ends.append(ends[-1] + len(ids))
    count = len(holders)
    table = pa.table(
        {
            "client": list(holders),
            "positions": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), lists),
            "snapshot": pa.array([number] * count, pa.int64()),
            "shard": pa.array([0] * count, pa.int32()),
        }
    )
    made = storage.writable(installed(settings).tables, SHARE_HOLDERS)
    write_deltalake(made, table.cast(arrow_schema(SHARE_HOLDERS)), mode="overwrite")
    return snapshot(number, {SHARE_HOLDERS.name: made.version()})


def published(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for message in read_to_end(
        installed(settings).kafka, TopicPartition(settings.topic("share-holders"), 0)
    ):
        found[(message.key() or b"").decode()] = message.value()
    forms = {client: json.loads(value) for client, value in found.items() if value is not None}
    for client, form in forms.items():
        assert form.pop("Client") == client
    return forms


def numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def test_a_million_positions_of_one_client_stop_neither_its_shard_nor_a_later_snapshot(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    million, most = numbers(1_000_000), numbers(800_000)
    holders = {"c1": numbers(2), "c2": million, "c3": most, "c4": numbers(3)}
    assert publish(installed(ready), held(ready, 1, holders)) == Publication(4, 1)
    assert "c2: its list of 1000000 positions is too large for a record of 8388608" in caplog.text
    found = published(ready)
    assert found["c2"] == {"Positions": None, "Count": 1_000_000}
    assert found["c3"]["Positions"] == [str(n) for n in range(800_000)]
    assert found["c4"] == {"Positions": ["0", "1", "2"]}
    assert publish(
        installed(ready), held(ready, 2, {"c2": million, "c5": numbers(1)})
    ) == Publication(2, 1)
    configure_topic(ready, ready.topic("share-holders"), {"max.message.bytes": str(16 << 20)})
    # All again, and tombstones of the three that are not in the table any more.
    assert publish(
        installed(ready), held(ready, 2, {"c2": million, "c5": numbers(1)})
    ) == Publication(5, 0)
    assert published(ready).keys() == {"c2", "c5"}
    assert published(ready)["c2"]["Positions"] == [str(n) for n in range(1_000_000)]


@pytest.mark.parametrize("compression", ["zstd", "producer"])
def test_a_record_of_just_the_bytes_that_its_topic_accepts_is_taken_however_it_compresses(
    ready: Settings, compression: str
) -> None:
    """An older topic has Kafka's default limit; what hardly compresses is of random characters."""
    topic, largest = ready.topic("share-holders"), 1_048_588
    config = {"max.message.bytes": str(largest), "compression.type": compression}
    configure_topic(ready, topic, config)
    form = '{"Client":"c","Positions":[""]}'
    empty = Outgoing(topic, b"c", form.encode(), headers_of(snapshot=1, count=1))
    room = largest - batch_bytes(empty)
    drawn = hashlib.shake_256(b"").digest(room)
    dense = "".join(
        chr(0xA0 + (a << 8 | b) % 0xD000) for a, b in zip(drawn[::2], drawn[1::2], strict=False)
    )
    dense = dense.encode()[: room - 3].decode(errors="ignore")
    dense += "x" * (room - len(dense.encode()))
    done = publish(installed(ready), held(ready, 1, {"c": pa.array([dense])}))
    assert done == Publication(1, 0)
    assert published(ready) == {"c": {"Positions": [dense]}}
    assert publish(installed(ready), held(ready, 2, {"c": pa.array([dense + "x"])})) == Publication(
        1, 1
    )


def test_small_records_of_a_topic_with_a_small_limit_are_not_refused_together(
    ready: Settings,
) -> None:
    configure_topic(ready, ready.topic("share-holders"), {"max.message.bytes": "3000"})
    holders = {f"c{n}": pa.array([hashlib.sha256(b"%d" % n).hexdigest()]) for n in range(500)}
    assert publish(installed(ready), held(ready, 1, holders)) == Publication(500, 0)


def rejected(settings: Settings, count: int) -> Snapshot:
    """Write so many rejected records, and commit their snapshot."""
    rows = [rejected_row(settings.topic("positions"), offset) for offset in range(count)]
    version = overwrite(settings, REJECTED_RECORDS, rows)
    made = replace(snapshot(1, {REJECTED_RECORDS.name: version}), counts=Counts(rejected=len(rows)))
    snapshots.commit(installed(settings).tables, made)
    return made


def test_very_many_letters_go_in_several_transactions_and_each_once_also_after_a_kill(
    ready: Settings,
) -> None:
    view = rejected(ready, 25_000)
    with dying(rejected_letters, "letters committed"), pytest.raises(KeyboardInterrupt):
        rejected_letters.send(installed(ready), view)
    assert (
        sum(1 for _ in committed(ready, ready.topic("dead-letters"))) == records.MAX_BATCH_RECORDS
    )
    assert rejected_letters.send(installed(ready), view) == 25_000 - records.MAX_BATCH_RECORDS
    found = [header(one, "origin-offset") for one in committed(ready, ready.topic("dead-letters"))]
    assert found == [str(offset) for offset in range(25_000)]
    assert rejected_letters.send(installed(ready), view) == 0


def test_clients_that_are_not_in_the_tables_get_a_tombstone_in_several_transactions(
    ready: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 1_000)
    lost = {f"lost{n}": numbers(1) for n in range(2_500)} | {"kept": numbers(2)}
    assert publish(installed(ready), replace(held(ready, 1, lost), run="lost")) == Publication(
        2_501, 0
    )
    view = replace(held(ready, 1, {"kept": numbers(2), "new": numbers(1)}), run="again")
    assert publish(installed(ready), view) == Publication(2_502, 0)
    assert "snapshot 1 was published, but is not in these tables" in caplog.text
    assert published(ready) == {"kept": {"Positions": ["0", "1"]}, "new": {"Positions": ["0"]}}
    assert publish(installed(ready), view) == Publication()


def test_what_is_deleted_from_the_topic_or_written_to_it_by_others_is_published_again_once(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    topic = ready.topic("share-holders")
    view = held(ready, 1, {"a": numbers(2), "b": numbers(1)})
    assert publish(installed(ready), view) == Publication(2, 0)
    assert publish(installed(ready), view) == Publication()
    # Of a topic that is compacted only, Kafka deletes no records on request.
    configure_topic(ready, topic, {"cleanup.policy": "compact,delete"})
    before = [confluent_kafka.TopicPartition(topic, 0, 1)]
    admin = installed(ready).kafka.admin()  # it has to outlive what it does
    for done in admin.delete_records(before).values():
        done.result(30)
    configure_topic(ready, topic, {"cleanup.policy": "compact"})
    assert publish(installed(ready), view) == Publication(2, 0)
    assert f"{topic}[0]: the records from 0 to 0 were deleted: publishing all again" in caplog.text
    assert publish(installed(ready), view) == Publication()
    other = installed(ready).kafka.producer()
    other.produce(topic, key=b"a", value=b"{}")
    other.produce(topic, key=b"nobody", value=b"{}")
    assert other.flush(30) == 0
    assert publish(installed(ready), view) == Publication(3, 0)
    assert f"{topic}[0]: another program has written to it" in caplog.text
    assert set(published(ready)) == {"a", "b"}
    assert publish(installed(ready), view) == Publication()


def test_a_transaction_that_a_killed_run_left_open_is_not_waited_for(ready: Settings) -> None:
    publish(installed(ready), held(ready, 1, {"a": numbers(1)}))
    killed = begun_publication(ready, 0)
    assert publish(installed(ready), held(ready, 2, {"a": numbers(2)})) == Publication(1, 0)
    assert published(ready) == {"a": {"Positions": ["0", "1"]}}
    with pytest.raises(confluent_kafka.KafkaException, match=r"fenced|newer producer"):
        killed.commit_transaction(30)


def test_a_writer_that_was_kept_while_its_broker_restarted_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LATE_SECONDS", 150.0)  # it is never answered
    with (
        own_broker(tmp_path / "home", partitions=1) as alone,
        installed(alone).kafka.writers.keeping(),
    ):
        for number in (1, 2):  # the second one by the writer of the first
            assert (
                publish(installed(alone), held(alone, number, {"a": numbers(number)})).records == 1
            )
        broker.stop(alone)
        broker.start(alone)
        assert publish(installed(alone), held(alone, 3, {"a": numbers(3)})).records == 1


def test_an_aborted_transaction_in_the_topic_changes_nothing(ready: Settings) -> None:
    view = held(ready, 1, {"a": numbers(2)})
    publish(installed(ready), view)
    other = begun_transaction(ready, ready.topic("share-holders"))
    other.produce(ready.topic("share-holders"), key=b"a", value=b"{}")
    other.flush(30)
    other.abort_transaction(30)
    assert publish(installed(ready), view) == Publication()


def test_a_policy_other_than_compact_is_told_by_what_the_broker_says(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    configure_topic(ready, ready.topic("share-holders"), {"cleanup.policy": "compact,delete"})
    view = held(ready, 1, {"a": numbers(2)})
    assert publish(installed(ready), view) == Publication(1, 0, is_compacted=False)
    assert "expected cleanup.policy=compact only, found 'compact,delete'" in caplog.text
    configure_topic(ready, ready.topic("share-holders"), {"cleanup.policy": "compact"})
    assert publish(installed(ready), view) == Publication()
