"""The reference that the Spark job is held against.

A plain fold of raw records, in a few lines of Python.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from shardpost.adapters import kafka
from shardpost.domain.position_ids import sort_key
from shardpost.settings import Settings

POSITION = {"Client": str, "Ticker": str, "Amount": (int, float), "Exchange": str}


@dataclass(frozen=True)
class Raw:
    """One record of an input topic (`positions`, `clients`, `exchanges`), as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_790_000_000_000
    partition: int = -1


def position(key: str, client: str, exchange: str, **more: Any) -> Raw:
    form = {"PositionId": key, "Client": client, "Ticker": "T", "Amount": 1, "Exchange": exchange}
    return Raw("positions", key.encode(), json.dumps(form).encode(), **more)


def closed(key: str, **more: Any) -> Raw:
    return Raw("positions", key.encode(), None, **more)


def exchange(code: str, country: str | None, **more: Any) -> Raw:
    form = {"Exchange": code, "Country": country}
    return Raw("exchanges", code.encode(), json.dumps(form).encode(), **more)


@dataclass
class Fold:
    """The state after some records: what a KTable with adder and subtractor would hold."""

    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    countries: dict[str, str | None] = field(default_factory=dict)
    rejected: int = 0

    def add(self, records: Iterable[Raw]) -> None:
        for record in records:
            try:
                self._one(record)
            except (ValueError, TypeError, AttributeError):
                self.rejected += 1

    def _one(self, record: Raw) -> None:
        key = record.key.decode()
        if not key:
            raise ValueError
        if record.value is None:
            (self.countries if record.topic == "exchanges" else self.positions).pop(key, None)
            return
        form = json.loads(record.value.decode())
        if record.topic == "exchanges":
            self.countries[key] = form.get("Country")
        elif all(_is(form.get(name), kinds) for name, kinds in POSITION.items()):
            self.positions[key] = form
        else:
            raise ValueError

    def holders(self, country: str = "US") -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key in sorted(self.positions, key=sort_key):
            if self.countries.get(self.positions[key]["Exchange"]) == country:
                found.setdefault(self.positions[key]["Client"], []).append(key)
        return found


def _is(value: object, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def produce(settings: Settings, records: Iterable[Raw]) -> None:
    """Send records in order, placed as Kafka places them unless they name a partition."""
    producer = kafka.producer(settings)
    for record in records:
        send(producer, settings, record)
    assert producer.flush(30) == 0


def _delivered(error: KafkaError | None, message: Message) -> None:
    assert error is None, f"{message.topic()}: {error}"


def send(producer: Producer, settings: Settings, record: Raw) -> None:
    producer.produce(
        settings.topic(record.topic),
        key=record.key,
        value=record.value,
        timestamp=record.timestamp_ms,
        partition=record.partition,
        on_delivery=_delivered,
    )
    producer.poll(0)


def published(settings: Settings) -> dict[str, list[str]]:
    """Return what a reader of the topic share-holders knows."""
    found: dict[str, list[str]] = {}
    topic = settings.topic("share-holders")
    for shard in range(kafka.partition_counts(settings, [topic])[topic]):
        for message in kafka.read_to_end(settings, topic, shard):
            client, value = message.key().decode(), message.value()
            if value is None:
                found.pop(client, None)
            else:
                form = json.loads(value)
                assert form["Client"] == client
                found[client] = form["Positions"]
    return found
