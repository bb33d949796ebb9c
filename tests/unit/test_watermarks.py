"""Asking for watermarks while a partition's leader moves; the broker's answers are made up."""

from concurrent.futures import Future
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from shardpost.kafka import clients, offsets, topic_metadata
from shardpost.settings import Settings


class Answer(NamedTuple):
    offset: int
    timestamp: int = -1


class Client:
    """An admin client whose broker refuses with these codes, one after the other, then answers."""

    def __init__(self, *refusals: int) -> None:
        self._refusals = list(refusals)
        self._answers = 0

    def list_topics(self, timeout: float) -> None:
        """Know the leaders."""

    def list_offsets(
        self, specs: dict[TopicPartition, object], **_: object
    ) -> dict[TopicPartition, "Future[Answer]"]:
        return {place: self._answer(place.partition) for place in specs}

    def _answer(self, partition: int) -> "Future[Answer]":
        future: Future[Answer] = Future()
        if self._refusals:
            future.set_exception(KafkaException(KafkaError(self._refusals.pop(0))))
        else:
            self._answers += 1
            is_low = self._answers <= 2  # of both partitions the low watermark, then the end
            future.set_result(Answer(partition if is_low else 10))
        return future


def asked(monkeypatch: pytest.MonkeyPatch, client: Client, wait: float) -> object:
    monkeypatch.setattr(offsets, "admin", lambda _: client)
    monkeypatch.setattr(topic_metadata, "LEADER_RETRY_SECONDS", 0)
    settings = Settings(kafka_timeout=wait)
    return offsets.watermarks(settings, {"positions": 2}, committed=True)


def test_a_partition_whose_leader_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT),
        *(KafkaError._DESTROY_BROKER, KafkaError._NOENT),
    )
    assert asked(monkeypatch, client, 30) == {"positions": {0: (0, 10), 1: (1, 10)}}


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1_000_000)
    with pytest.raises(clients.KafkaUnreachableError, match="cannot be reached"):
        asked(monkeypatch, client, 0.05)


def test_any_other_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(clients.KafkaUnreachableError, match="uthoriz"):
        asked(monkeypatch, client, 30)
