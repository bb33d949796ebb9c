"""Transactions that are under way, of whoever writes to our topics."""

from typing import Any

from confluent_kafka import Producer

from shardpost.kafka.clients import transactional_producer
from shardpost.settings import Settings


def begun_transaction(settings: Settings, transactional_id: str, **config: Any) -> Producer:
    """Return a producer amid a transaction."""
    producer = transactional_producer(settings, transactional_id, **config)
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer
