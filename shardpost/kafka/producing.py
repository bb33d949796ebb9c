"""Writing one record outside any transaction, and where Kafka put it."""

from confluent_kafka import KafkaError, Message

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import producer
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings


def produce(settings: Settings, record: Outgoing) -> Coordinates:
    """Write one record and return its coordinates; ShardpostError if Kafka does not accept it."""
    delivered: list[tuple[KafkaError | None, Message]] = []
    client = producer(settings)
    client.produce(
        record.topic,
        key=record.key,
        value=record.value,
        headers=record.headers,
        partition=record.partition,
        timestamp=record.timestamp,
        on_delivery=lambda error, message: delivered.append((error, message)),
    )
    client.flush(settings.kafka_timeout)
    if not delivered:
        raise _not_accepted(record, f"no answer within {settings.kafka_timeout:g} s")
    [(error, message)] = delivered
    if error is not None:
        raise _not_accepted(record, str(error))
    return Coordinates(record.topic, message.partition() or 0, message.offset() or 0)


def _not_accepted(record: Outgoing, reason: str) -> ShardpostError:
    return ShardpostError(f"{record.topic}: Kafka did not accept the record: {reason}")
