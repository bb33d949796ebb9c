"""What a compaction does after its snapshot: one that finds nothing new does only that."""

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from shardpost.delta import snapshots
from shardpost.errors import NEEDS_ATTENTION, ShardpostError, UsageError
from shardpost.holders import compaction, plausibility
from shardpost.holders.compaction_job import COMPACT_POSITIONS, RECONCILE_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError
from shardpost.kafka.records import TopicPartition
from shardpost.locks.locks import LockedError, exclusive
from shardpost.settings import Settings
from shardpost.spark.job import BY_DEFAULT, document_of
from shardpost.spark.submit import submit
from shardpost.topics import guards
from shardpost.values.holding_rule import Rule
from tests.support.committed_snapshot import SHARDS, commit_snapshot, configure, limit, published
from tests.support.installed import installed
from tests.support.letter_world import committed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_kafka.log import PartitionLog
from tests.support.transactions import begun_transaction

KAFKA = {"partitions": SHARDS}


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a job is submitted."""

    def refuse(*command: object, **_: object) -> None:
        raise AssertionError(f"submitted: {command}")

    monkeypatch.setattr(subprocess, "run", refuse)


def test_with_nothing_new_a_compaction_starts_no_spark(kafka: MemoryKafka) -> None:
    before = commit_snapshot(kafka)
    code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert (code, result["changed"], result["published"], result["letters"]) == (0, False, 1, 1)
    assert result["rejected"] == 0
    after = snapshots.newest(installed(kafka.settings).tables)
    assert after is not None
    assert after.number == before.number
    assert after.looked_at > before.looked_at
    assert result["snapshot"] == after.as_json()
    assert published(kafka) == {"client": {"Positions": ["1"]}}


def test_with_nothing_new_all_that_was_looked_at_is_noted(kafka: MemoryKafka) -> None:
    commit_snapshot(kafka)
    kafka.broker.topics["positions"].logs.append(PartitionLog())
    kafka.broker.create_topic("again", 1, {})
    here = {"bootstrap_servers": kafka.settings.bootstrap, "home": kafka.settings.home}
    settings = Settings(**here, retry_origins="positions: topic=again", partitions=SHARDS)
    assert submit(installed(settings), COMPACT_POSITIONS)[0] == 0
    noted = snapshots.current(installed(settings).tables)
    assert noted.end_offsets["positions"] == {0: 0, 1: 0, 2: 0}
    assert noted.end_offsets["again"] == {0: 0}
    assert {"positions", "again"} <= {*noted.topic_ids}
    installed(settings).kafka.producer().produce(
        "again", b"{}", b"1", 0
    )  # and the setting is taken back
    assert COMPACT_POSITIONS.without_spark(installed(kafka.settings), BY_DEFAULT) is None


def test_with_nothing_new_the_country_that_is_set_now_is_noted(kafka: MemoryKafka) -> None:
    swapped = replace(commit_snapshot(kafka), rule=Rule("US"), set_country="GB")
    snapshots.update_looked_at(installed(kafka.settings).tables, swapped)
    assert submit(installed(kafka.settings), COMPACT_POSITIONS)[0] == 0
    british = kafka.settings.model_copy(update={"country": "GB"})
    with pytest.raises(UsageError, match="country GB: snapshot 1 is for country US"):
        plausibility.require_rule(
            installed(british).tables, snapshots.current(installed(british).tables), Rule("GB")
        )


def test_a_confirmed_country_is_that_of_the_setting_though_a_swap_chose_another(
    kafka: MemoryKafka,
) -> None:
    swapped = replace(commit_snapshot(kafka), rule=Rule("GB"), set_country="US")
    snapshots.update_looked_at(installed(kafka.settings).tables, swapped)
    confirmed = document_of(CompactionRequest(country_changed=True))
    assert COMPACT_POSITIONS.without_spark(installed(kafka.settings), confirmed) is None
    assert COMPACT_POSITIONS.without_spark(installed(kafka.settings), BY_DEFAULT) is not None


def test_what_fails_after_the_snapshot_is_stored_is_left_to_do(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_snapshot(kafka)
    gone = Mock(side_effect=KafkaUnreachableError("Kafka cannot be reached"))
    monkeypatch.setattr(guards, "take_topics", gone)
    with pytest.raises(ShardpostError) as found:
        submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert str(found.value) == (
        "snapshot 1 is committed and the tables are complete; still to do: publishing to"
        " share-holders, and letters. Kafka cannot be reached. Run `shardpost compact` again to"
        " finish it"
    )


def test_with_an_open_transaction_nothing_new_is_not_all_that_there_is(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offsets, "STABLE_SECONDS", 0.0)
    before = commit_snapshot(kafka)
    writer = begun_transaction(kafka.settings, "writer")
    writer.produce("clients", b"{}", b"1", 1)
    installed(kafka.settings).kafka.producer().produce("clients", None, b"2", 1)
    code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert (code, result["changed"]) == (NEEDS_ATTENTION, False)
    [hidden] = result["open_transactions"]
    assert (hidden["topic"], hidden["partition"], hidden["offset"]) == ("clients", 1, 0)
    assert "clients[1]@0, since 20" in caplog.text
    after = snapshots.newest(installed(kafka.settings).tables)
    assert after is not None
    assert after.looked_at == before.looked_at
    assert after.incomplete is not None
    assert after.incomplete.ends["clients"] == {0: 0, 1: 2}
    assert after.read_at > before.looked_at
    writer.abort_transaction(10)
    assert (
        COMPACT_POSITIONS.without_spark(installed(kafka.settings), BY_DEFAULT) is None
    )  # there is more to read


def test_a_look_by_a_clock_that_was_ahead_is_set_back_with_a_warning(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = datetime.now(UTC) + timedelta(days=8)
    snapshots.update_looked_at(
        installed(kafka.settings).tables, replace(commit_snapshot(kafka), looked_at=ahead)
    )
    assert submit(installed(kafka.settings), COMPACT_POSITIONS)[0] == 0
    after = snapshots.newest(installed(kafka.settings).tables)
    assert after is not None
    assert timedelta(0) <= datetime.now(UTC) - after.looked_at < timedelta(minutes=1)
    assert f"read the inputs at {ahead:%Y-%m-%d %H:%M} UTC" in caplog.text
    caplog.clear()
    assert submit(installed(kafka.settings), COMPACT_POSITIONS)[0] == 0
    assert "clock of a compaction was ahead" not in caplog.text


def test_a_retry_topic_that_was_read_and_is_gone_is_said_once(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    view = commit_snapshot(kafka)
    read = {**view.end_offsets, "former": {0: 5}}
    snapshots.update_looked_at(installed(kafka.settings).tables, replace(view, end_offsets=read))
    assert submit(installed(kafka.settings), COMPACT_POSITIONS)[0] == 0
    assert caplog.text.count("retry topic former was read before and no longer exists") == 1
    assert submit(installed(kafka.settings), COMPACT_POSITIONS)[0] == 0
    assert caplog.text.count("retry topic former") == 1


def test_with_a_new_record_a_compaction_needs_spark_and_nothing_is_changed(
    kafka: MemoryKafka,
) -> None:
    before = commit_snapshot(kafka)
    installed(kafka.settings).kafka.producer().produce("positions", b"{}", b"7", 0)
    assert COMPACT_POSITIONS.without_spark(installed(kafka.settings), BY_DEFAULT) is None
    assert snapshots.newest(installed(kafka.settings).tables) == before
    assert published(kafka) == {}


def test_a_first_compaction_one_of_another_country_and_a_reconciliation_need_spark(
    kafka: MemoryKafka,
) -> None:
    settings, reconcile = kafka.settings, document_of(CompactionRequest(reconcile=True))
    assert COMPACT_POSITIONS.without_spark(installed(settings), BY_DEFAULT) is None
    commit_snapshot(kafka)
    british = settings.model_copy(update={"country": "GB"})
    assert COMPACT_POSITIONS.without_spark(installed(british), BY_DEFAULT) is None
    assert RECONCILE_POSITIONS.without_spark(installed(settings), reconcile) is None


def test_beside_a_running_compaction_one_that_may_not_wait_ends(kafka: MemoryKafka) -> None:
    commit_snapshot(kafka)
    settings = kafka.settings.model_copy(update={"lock_wait": 0.0})
    name = COMPACT_POSITIONS.name
    with (
        exclusive(installed(settings).files, name, name),
        pytest.raises(LockedError, match="already running"),
    ):
        submit(installed(settings), COMPACT_POSITIONS)


def test_tables_that_cannot_be_written_are_one_line(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "snapshots")

    commit_snapshot(kafka)
    monkeypatch.setattr(snapshots, "update_looked_at", full)
    with pytest.raises(ShardpostError, match=r"could not be read or written: .*No space left"):
        submit(installed(kafka.settings), COMPACT_POSITIONS)


def test_offsets_that_only_lag_tools_read_stop_nothing_if_they_are_refused(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit_snapshot(kafka)
    commit = offsets.commit_offsets

    def refusing(own: Kafka, group: str, *more: Any) -> None:
        if group == compaction.COMPACTION_GROUP:
            raise ShardpostError("the group is not empty")
        commit(own, group, *more)

    monkeypatch.setattr(offsets, "commit_offsets", refusing)
    code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert (code, result["published"]) == (0, 1)
    assert "shardpost-compaction were not committed: the group is not empty" in caplog.text


def renamed(settings: Settings, *topics: str) -> Settings:
    """Return settings by which these topics do not exist."""
    names = {topic: f"no-{topic}" for topic in topics}
    return settings.model_copy(update={"topics": settings.topics | names})


def test_a_list_that_is_too_large_ends_with_3_until_nothing_new_is_published(
    kafka: MemoryKafka,
) -> None:
    limit(kafka, 2_000)
    commit_snapshot(kafka, many=[str(n) for n in range(1000)])
    code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert (code, result["too_large"], result["letters"]) == (NEEDS_ATTENTION, 1, 1)
    code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert (code, result["too_large"], result["published"]) == (0, 0, 0)


def test_a_topic_whose_records_kafka_deletes_ends_with_3_until_its_policy_is_right(
    kafka: MemoryKafka,
) -> None:
    configure(kafka, {"cleanup.policy": "compact,delete"})
    commit_snapshot(kafka)
    for done in (1, 0):  # also with nothing new
        code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
        assert (code, result["published"]) == (NEEDS_ATTENTION, done)
        assert result["share_holders_compacted"] is False
    configure(kafka, {"cleanup.policy": "compact"})
    topic = kafka.settings.topic("share-holders")
    for shard in range(SHARDS):  # what Kafka had deleted by then
        log = kafka.broker.log(TopicPartition(topic, shard))
        log.delete_before(log.end)
    assert published(kafka) == {}
    code, result = submit(installed(kafka.settings), COMPACT_POSITIONS)
    assert (code, result["published"], result["share_holders_compacted"]) == (0, 1, True)
    assert published(kafka) == {"client": {"Positions": ["1"]}}


def test_letters_are_sent_also_where_publishing_fails(kafka: MemoryKafka) -> None:
    view = commit_snapshot(kafka)
    with pytest.raises(ShardpostError, match="no topic no-share-holders") as found:
        compaction.publish_and_send(installed(renamed(kafka.settings, "share-holders")), view)
    assert f"snapshot {view.number} is committed" in str(found.value)
    assert "still to do: publishing to no-share-holders. " in str(found.value)
    assert str(found.value).endswith("Run `shardpost compact` again to finish it")
    assert [one.value for one in committed(kafka.settings, "dead-letters")] == [b"{"]
    code, done = compaction.publish_and_send(installed(kafka.settings), view)
    assert (code, done["published"], done["letters"]) == (0, 1, 0)


def test_holders_are_published_also_where_letters_cannot_be_sent(kafka: MemoryKafka) -> None:
    view = commit_snapshot(kafka)
    with pytest.raises(ShardpostError, match="no topic no-dead-letters") as found:
        compaction.publish_and_send(installed(renamed(kafka.settings, "dead-letters")), view)
    assert "still to do: the letters of rejected records to no-dead-letters. " in str(found.value)
    assert published(kafka) == {"client": {"Positions": ["1"]}}


def test_where_both_fail_both_are_told(kafka: MemoryKafka) -> None:
    view = commit_snapshot(kafka)
    broken = renamed(kafka.settings, "share-holders", "dead-letters")
    with pytest.raises(
        ShardpostError, match=r"no topic no-share-holders.*; .*no topic no-dead-letters"
    ):
        compaction.publish_and_send(installed(broken), view)
