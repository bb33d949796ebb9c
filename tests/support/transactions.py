"""Transactions that are under way, of whoever writes to our topics."""

from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

from shardpost.holders.share_holders_topic import PUBLISH_GROUP
from shardpost.settings import Settings
from tests.support.installed import installed


def begun_transaction(settings: Settings, transactional_id: str, **config: Any) -> Producer:
    """Return a producer amid a transaction."""
    producer = installed(settings).kafka.transactional_producer(transactional_id, **config)
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def begun_publication(settings: Settings, partition: int) -> Producer:
    """Return a producer that publishes a snapshot to `share-holders`, and has not committed it."""
    topic = settings.topic("share-holders")
    writer = begun_transaction(settings, f"{topic}/publish/{partition}")
    writer.produce(topic, key=b"killed", value=b"{}", partition=partition)
    writer.flush(30)
    noted = confluent_kafka.TopicPartition(topic, partition, 7)
    with closing(installed(settings).kafka.consumer(PUBLISH_GROUP)) as reader:
        writer.send_offsets_to_transaction([noted], reader.consumer_group_metadata(), 30)
    return writer
