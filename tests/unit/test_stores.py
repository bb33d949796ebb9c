"""Topics that are stores: what was deleted, recreated or misconfigured is refused by name."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest

from shardpost.dead_letters.sweep import sweep_dead_letters
from shardpost.errors import ShardpostError
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import TopicMark, TopicPartition
from shardpost.run_requests.dispatch import dispatch
from shardpost.run_requests.request_client import release
from shardpost.topics import guards
from shardpost.topics.guards import StoreTopic, describe_stores, require_stores
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

STORE = "dead-letters"
NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _three_letters(kafka: MemoryKafka) -> None:
    for number in range(3):
        installed(kafka.settings).kafka.producer().produce(STORE, b"v", f"{number}".encode(), 0)


def check(kafka: MemoryKafka) -> None:
    require_stores(installed(kafka.settings), "dead-letters", "parking-lot")


def refused(kafka: MemoryKafka) -> str:
    with pytest.raises(ShardpostError) as raised:
        check(kafka)
    return str(raised.value)


def test_stores_that_only_grow_and_are_compacted_are_accepted(kafka: MemoryKafka) -> None:
    check(kafka)
    installed(kafka.settings).kafka.producer().produce(STORE, b"v", b"1", 0)
    kafka.broker.log(TopicPartition(STORE, 0)).compact()
    check(kafka)


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
def test_a_store_that_kafka_deletes_from_is_refused(kafka: MemoryKafka, policy: str) -> None:
    kafka.broker.topics[STORE].config = {"cleanup.policy": policy}
    assert f"topic {STORE}: expected cleanup.policy=compact" in refused(kafka)


def test_a_store_that_was_recreated_is_refused_until_a_person_removes_what_was_known(
    kafka: MemoryKafka,
) -> None:
    check(kafka)
    config = kafka.broker.topics[STORE].config
    kafka.broker.delete_topic(STORE)
    kafka.broker.create_topic(STORE, 2, config)
    known = kafka.settings.home / "stores" / f"{STORE}.json"
    for _ in range(2):
        found = refused(kafka)
        assert f"topic {STORE}: it was deleted and created again" in found
        assert f"remove {known}" in found
    known.unlink()
    check(kafka)


def test_a_broker_that_gives_no_ids_recreates_no_topic() -> None:
    with_id = TopicMark("id", (0,), (9,))
    without = TopicMark("", (0,), (9,))
    assert with_id.lost_since(TopicMark("", (0,), (9,))) is None
    assert without.lost_since(TopicMark("id", (0,), (9,))) is None
    assert with_id.lost_since(TopicMark("other", (0,), (9,)))


def test_a_store_of_which_records_were_deleted_is_refused(kafka: MemoryKafka) -> None:
    kafka.broker.log(TopicPartition(STORE, 0)).delete_before(1)
    check(kafka)  # what was deleted before its first use here cannot be known
    kafka.broker.log(TopicPartition(STORE, 0)).delete_before(3)
    assert "partition 0: the records from 1 to 2 were deleted" in refused(kafka)


def test_a_store_that_was_cut_off_is_refused(kafka: MemoryKafka) -> None:
    check(kafka)
    log = kafka.broker.log(TopicPartition(STORE, 0))
    log.end, log.entries = 2, log.entries[:2]
    assert "partition 0: it ends at offset 2, but ended at 3 before" in refused(kafka)


def test_a_store_that_grows_while_another_process_looks_is_whole_and_stays_known(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(kafka)

    def and_then_it_grows(at: Kafka, topics: Sequence[str]) -> list[StoreTopic]:
        found = describe_stores(at, topics)
        at.producer().produce(STORE, b"v", b"3", 0)
        with monkeypatch.context() as patch:
            patch.setattr(guards, "describe_stores", describe_stores)
            check(kafka)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(guards, "describe_stores", and_then_it_grows)
        check(kafka)
    known = json.loads((kafka.settings.home / "stores" / f"{STORE}.json").read_text())
    assert known["high"] == [4, 0]


def test_what_two_processes_know_of_a_store_is_the_most_that_it_held() -> None:
    known = TopicMark("id", (2, 0), (9, 5))
    assert known.merged(None) == known
    assert known.merged(TopicMark("id", (1, 3), (8, 7))) == TopicMark("id", (1, 0), (9, 7))
    for other in (TopicMark("new", (0, 0), (1, 1)), TopicMark("id", (0,), (1,))):
        assert known.merged(other) == other


def test_a_store_that_was_given_more_partitions_is_refused(kafka: MemoryKafka) -> None:
    check(kafka)
    logs = kafka.broker.topics[STORE].logs
    logs.append(type(logs[0])())
    assert "it has 3 partitions, but had 2 before" in refused(kafka)


@pytest.mark.parametrize("store", ["dead-letters", "parking-lot", "run-commands"])
def test_whoever_uses_a_store_checks_it_first(
    kafka: MemoryKafka, store: str, shardpost: CommandLine
) -> None:
    kafka.broker.topics[store].config = {"cleanup.policy": "delete"}
    said = f"topic {store}: expected cleanup.policy"
    if store != "run-commands":
        assert said in shardpost.refused("letters", "redrive", code=1)
    of_letters: list[Callable[[], object]] = [
        lambda: sweep_dead_letters(installed(kafka.settings), NOW)
    ]
    of_runs: list[Callable[[], object]] = [
        lambda: dispatch(installed(kafka.settings), NOW),
        lambda: release(installed(kafka.settings), "key", "anna", "why", NOW),
    ]
    for use in of_runs if store == "run-commands" else of_letters:
        with pytest.raises(ShardpostError, match=said):
            use()


def test_what_is_known_of_a_store_and_cannot_be_read_is_named(kafka: MemoryKafka) -> None:
    check(kafka)
    known = kafka.settings.home / "stores" / f"{STORE}.json"
    known.write_text("{")
    assert f"{known}: cannot be read" in refused(kafka)


def test_a_store_that_does_not_exist_is_named(kafka: MemoryKafka) -> None:
    kafka.broker.delete_topic(STORE)
    assert f"has no topic {STORE}" in refused(kafka)
