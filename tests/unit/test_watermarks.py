"""Asking for watermarks while a partition's leader moves; the broker's answers are made up."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from shardpost.kafka import clients, offsets, topic_metadata
from shardpost.settings import Settings


class Reader:
    """A consumer whose broker refuses with these codes, one after the other, and then answers."""

    def __init__(self, *refusals: int) -> None:
        self._refusals = list(refusals)
        self.closed = False

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        if self._refusals:
            raise KafkaException(KafkaError(self._refusals.pop(0)))
        return place.partition, 10

    def close(self) -> None:
        self.closed = True


def asked(monkeypatch: pytest.MonkeyPatch, reader: Reader, wait: float) -> object:
    monkeypatch.setattr(offsets, "consumer", lambda *_, **__: reader)
    monkeypatch.setattr(topic_metadata, "LEADER_RETRY_SECONDS", 0)
    settings = Settings(kafka_timeout=wait)
    return offsets.watermarks(settings, {"positions": 2}, committed=True)


def test_a_partition_whose_leader_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER
    )
    assert asked(monkeypatch, reader, 30) == {"positions": {0: (0, 10), 1: (1, 10)}}
    assert reader.closed


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1_000_000)
    with pytest.raises(clients.KafkaUnreachableError, match="cannot be reached"):
        asked(monkeypatch, reader, 0.05)
    assert reader.closed


def test_any_other_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(clients.KafkaUnreachableError, match="uthoriz"):
        asked(monkeypatch, reader, 30)
