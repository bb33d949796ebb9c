"""Clients that stay open between two uses, and how long."""

import time
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from shardpost.kafka import offsets
from shardpost.kafka.clients import KeptClients
from shardpost.kafka.records import TopicPartition
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_kafka.consumer import MemoryConsumer

PLACE = TopicPartition("positions", 0)


def test_no_more_are_kept_than_may_be() -> None:
    kept: KeptClients[mock.Mock] = KeptClients(1)
    clients = [mock.Mock() for _ in range(2)]
    with kept.keeping():
        for number, client in enumerate(clients):
            kept.give_back(number, client)
        assert [client.close.call_count for client in clients] == [0, 1]
    assert [client.close.call_count for client in clients] == [1, 1]


def test_of_two_for_the_same_one_is_kept() -> None:
    kept: KeptClients[mock.Mock] = KeptClients(9)
    first, second = mock.Mock(), mock.Mock()
    with kept.keeping():
        kept.give_back("a", first)
        kept.give_back("a", second)
        assert (first.close.called, second.close.called) == (False, True)
        assert (kept.take("a"), kept.take("a")) == (first, None)


def test_one_that_was_made_with_something_else_is_closed_not_used() -> None:
    kept: KeptClients[mock.Mock] = KeptClients(1)
    client = mock.Mock()
    client.close.side_effect = KafkaException(KafkaError(KafkaError._FENCED))
    with kept.keeping():
        kept.give_back("a", client, "older")
        assert kept.take("a", "newer") is None
        assert client.close.called
        kept.give_back("a", newer := mock.Mock(), "newer")
        assert kept.take("a", "newer") is newer


@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_not_usable_or_not_to_be_kept_is_closed(keeps: bool) -> None:
    kept: KeptClients[mock.Mock] = KeptClients(9)
    client = mock.Mock()
    with mock.patch.object(kept, "_is_keeping", keeps):
        kept.give_back("a", client, is_usable=not keeps)
    assert client.close.called
    assert kept.take("a") is None


def test_one_that_lay_idle_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: KeptClients[mock.Mock] = KeptClients(9, idle_seconds=2.0)
    client, now = mock.Mock(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with kept.keeping():
        kept.give_back("a", client)
        now[0] += 2.0
        assert kept.take("a") is client
        kept.give_back("a", client)
        now[0] += 2.1
        assert kept.take("a") is None
    assert client.close.call_count == 1


def test_one_that_was_lost_meanwhile_is_closed_not_used() -> None:
    lost: set[mock.Mock] = set()
    kept: KeptClients[mock.Mock] = KeptClients(9, is_lost=lost.__contains__)
    client = mock.Mock()
    with kept.keeping():
        kept.give_back("a", client)
        assert kept.take("a") is client
        kept.give_back("a", client)
        lost.add(client)
        assert kept.take("a") is None
        assert client.close.called


def test_a_consumer_is_used_again_for_its_group_and_not_after_an_error(kafka: MemoryKafka) -> None:
    settings = kafka.settings
    with installed(kafka.settings).kafka.consumers.keeping():
        with installed(settings).kafka.kept_consumer("a") as first:
            pass
        with (
            installed(settings).kafka.kept_consumer("b") as other,
            installed(settings).kafka.kept_consumer("a") as again,
        ):
            pass
        assert (again is first, other is first) == (True, False)
        with (
            pytest.raises(ValueError, match="x"),
            installed(settings).kafka.kept_consumer("a") as failed,
        ):
            raise ValueError("x")
        assert failed is first
        with installed(settings).kafka.kept_consumer("a") as new:
            assert new is not first
    with installed(settings).kafka.kept_consumer("a") as last:
        assert last is not new


def test_one_that_cannot_be_closed_keeps_no_other_open() -> None:
    kept: KeptClients[mock.Mock] = KeptClients(9)
    clients = [mock.Mock() for _ in range(3)]
    clients[1].close.side_effect = KafkaException(KafkaError(KafkaError._FAIL))
    with kept.keeping():
        for number, client in enumerate(clients):
            kept.give_back(number, client)
    assert [client.close.call_count for client in clients] == [1, 1, 1]


def test_a_consumer_whose_coordinator_was_silent_is_not_used_again(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, asked = MemoryConsumer.committed, list[MemoryConsumer]()

    def committed(reader: MemoryConsumer, *arguments: Any, **more: Any) -> Any:
        asked.append(reader)
        if reader is asked[0]:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return own(reader, *arguments, **more)

    monkeypatch.setattr(MemoryConsumer, "committed", committed)
    with installed(kafka.settings).kafka.consumers.keeping():
        for _ in range(3):
            with installed(kafka.settings).kafka.kept_consumer("a") as reader:
                assert (
                    offsets.committed_offset(installed(kafka.settings).kafka, reader, PLACE) is None
                )
    silent, by_another, *later = asked
    assert silent is not by_another
    assert len({silent, by_another, *later}) == 3  # the third is kept
    assert silent._is_closed


def test_offsets_are_committed_by_another_consumer_where_the_coordinator_was_silent(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, used = kafka.settings, dict[str, list[MemoryConsumer]]()

    def noted(name: str) -> None:
        own = getattr(MemoryConsumer, name)

        def call(reader: MemoryConsumer, *arguments: Any, **more: Any) -> Any:
            used.setdefault(name, []).append(reader)
            if used["committed"] == [reader]:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return own(reader, *arguments, **more)

        monkeypatch.setattr(MemoryConsumer, name, call)

    noted("committed")
    noted("commit")
    with installed(kafka.settings).kafka.consumers.keeping():
        for offset in (7, 8):
            offsets.commit_offsets(installed(settings).kafka, "a", {"positions": {0: offset}})
            with installed(settings).kafka.kept_consumer("a") as reader:
                assert offsets.committed_offset(installed(settings).kafka, reader, PLACE) == offset
    silent, *_ = used["committed"]
    assert silent not in used["commit"]
    assert len(used["commit"]) == 2
