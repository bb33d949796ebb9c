"""The reference that the Spark job is held against.

A plain fold of raw records, in a few lines of Python.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from shardpost.delta.snapshot import LONGEST_EXCHANGE
from shardpost.holders.model.who_holds import condition_of, position_sort_key
from shardpost.kafka import reading, topic_metadata
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from shardpost.values.topic_names import TopicName
from tests.support.installed import installed

POSITION = {"Client": str, "Ticker": str, "Amount": (int, float), "Exchange": str}


@dataclass(frozen=True)
class Raw:
    """One record of an input topic (`positions`, `clients`, `exchanges`), as bytes."""

    topic: TopicName
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_790_000_000_000
    partition: int = -1


@dataclass(frozen=True)
class Retry:
    """A retry of that very record, which was sent before, with a value of its own."""

    origin: Raw
    value: bytes | None
    timestamp_ms: int = 1_790_000_000_000


def position(key: str, client: str, exchange: str, amount: float = 1, **more: Any) -> Raw:
    form: dict[str, Any] = {
        "PositionId": key,
        "Client": client,
        "Ticker": "T",
        "Exchange": exchange,
    }
    form |= {"Amount": amount}
    return Raw("positions", key.encode(), json.dumps(form).encode(), **more)


def closed(key: str, **more: Any) -> Raw:
    return Raw("positions", key.encode(), None, **more)


def client(key: str, name: str) -> Raw:
    form = {"Client": key, "Name": name, "Email": f"{name}@x.example", "Subscribed": True}
    return Raw("clients", key.encode(), json.dumps(form).encode())


def exchange(code: str, country: str | None, **more: Any) -> Raw:
    form = {"Exchange": code, "Country": country}
    return Raw("exchanges", code.encode(), json.dumps(form).encode(), **more)


# A record's place among those of its key: a retry stands with its origin, and below it if that is
# good; the next retry of the same origin stands above it.
Place = tuple[int, bool, int]


@dataclass
class Fold:
    """The state after some records: what a KTable with adder and subtractor would hold."""

    rejected: int = 0
    _latest: dict[tuple[str, str], tuple[Place, Any]] = field(default_factory=dict)
    _originals: list[Raw] = field(default_factory=list)
    _retries: int = 0

    def add(self, records: Iterable[Raw | Retry]) -> None:
        for record in records:
            try:
                self._one(*self._placed(record))
            except (ValueError, TypeError, AttributeError):
                self.rejected += 1

    def _placed(self, record: Raw | Retry) -> tuple[Raw, bytes | None, Place]:
        if isinstance(record, Raw):
            self._originals.append(record)
            return record, record.value, (len(self._originals) - 1, True, 0)
        self._retries += 1
        seq = next(n for n, raw in enumerate(self._originals) if raw is record.origin)
        return record.origin, record.value, (seq, False, self._retries)

    def _one(self, record: Raw, value: bytes | None, place: Place) -> None:
        key = (record.key or b"").decode()
        if not (key.strip() if record.topic == "clients" else key):
            raise ValueError
        form: Any = None if value is None else json.loads(value.decode())
        if form is not None and record.topic == "positions":
            if not all(_is(form.get(name), kinds) for name, kinds in POSITION.items()):
                raise ValueError
            if not form["Client"].strip():
                raise ValueError
        elif value is not None:
            form.get("Country")
        known = self._latest.get((record.topic, key))
        if known is None or place > known[0]:
            self._latest[record.topic, key] = place, form

    @property
    def positions(self) -> dict[str, Any]:
        return self._open("positions")

    @property
    def countries(self) -> dict[str, str | None]:
        return {code: form.get("Country") for code, form in self._open("exchanges").items()}

    @property
    def unknown_exchanges(self) -> dict[str, int]:
        """The open positions by exchange of which no country is known; long codes are cut."""
        known = {code for code, country in self.countries.items() if country is not None}
        codes = (form["Exchange"] for form in self.positions.values())
        return Counter(code[:LONGEST_EXCHANGE] for code in codes if code not in known)

    def _open(self, topic: str) -> dict[str, Any]:
        return {k: form for (t, k), (_, form) in self._latest.items() if t == topic and form}

    def holders(self, country: str = "US", holds: str | None = None) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        positions, countries = self.positions, self.countries
        is_met = condition_of(Rule(country, holds)).is_met
        for key in sorted(positions, key=position_sort_key):
            form = positions[key]
            values = {name.lower(): form[name] for name in POSITION}
            values |= {"position": key, "country": countries.get(form["Exchange"])}
            if is_met(values):
                found.setdefault(form["Client"], []).append(key)
        return found


def _is(value: object, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def produce(settings: Settings, records: Iterable[Raw]) -> dict[int, tuple[int, int]]:
    """Send records in order, placed as Kafka places them unless they name a partition.

    Return where each came to: {its id(): (partition, offset)}.
    """
    places: dict[int, tuple[int, int]] = {}
    producer = _quick_producer(settings)
    for record in records:
        send(producer, settings, record, places)
    assert producer.flush(30) == 0
    return places


def produce_retry(
    settings: Settings,
    retry: Retry,
    place: tuple[int, int],
    other_key: bytes | None = None,
    **more: str,
) -> None:
    """Send a retry of a record that came to that place; `more` are other values of its headers."""
    headers = {
        "letter-id": f"{settings.topic(retry.origin.topic)}-{place[0]}-{place[1]}",
        "origin-topic": settings.topic(retry.origin.topic),
        "origin-partition": str(place[0]),
        "origin-offset": str(place[1]),
        "attempt": "1",
    }
    named = {name.replace("_", "-"): value for name, value in more.items()}
    producer = _quick_producer(settings)
    producer.produce(
        settings.topic("retries"),
        key=retry.origin.key if other_key is None else other_key,
        value=retry.value,
        headers=list((headers | named).items()),
        timestamp=retry.timestamp_ms,
        on_delivery=_delivered,
    )
    assert producer.flush(30) == 0


def _quick_producer(settings: Settings) -> Producer:
    """Return one that keeps the order without a producer id, for which others wait 0.5 s."""
    more = {"partitioner": "murmur2_random", "max.in.flight.requests.per.connection": 1}
    return Producer(installed(settings).kafka.config(**more))


def _delivered(error: KafkaError | None, message: Message) -> None:
    assert error is None, f"{message.topic()}: {error}"


def send(
    producer: Producer,
    settings: Settings,
    record: Raw,
    places: dict[int, tuple[int, int]] | None = None,
) -> None:
    def delivered(error: KafkaError | None, message: Message) -> None:
        _delivered(error, message)
        if places is not None:
            places[id(record)] = message.partition() or 0, message.offset() or 0

    producer.produce(
        settings.topic(record.topic),
        key=record.key,
        value=record.value,
        timestamp=record.timestamp_ms,
        partition=record.partition,
        on_delivery=delivered,
    )
    producer.poll(0)


def published(settings: Settings) -> dict[str, list[str]]:
    """Return what a reader of the topic share-holders knows."""
    found: dict[str, list[str]] = {}
    topic = settings.topic("share-holders")
    for shard in range(topic_metadata.partition_counts(installed(settings).kafka, [topic])[topic]):
        for message in reading.read_to_end(installed(settings).kafka, TopicPartition(topic, shard)):
            client, value = (message.key() or b"").decode(), message.value()
            if value is None:
                found.pop(client, None)
            else:
                form = json.loads(value)
                assert form["Client"] == client
                found[client] = form["Positions"]
    return found
