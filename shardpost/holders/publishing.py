"""Publishing the difference between the last published snapshot and the newest to `share-holders`.

One transactional producer per partition, `publish/<partition>`: init_transactions fences whoever
was there, only then the published number is read, and the difference goes out in one transaction
with the new number, which is metadata of an offset commit. So a stopped run that wakes up later
cannot overwrite newer values.
"""

import json
import logging
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from shardpost.delta.query import query, stream
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders.model.tables import SHARE_HOLDERS
from shardpost.kafka import clients, offsets
from shardpost.settings import Settings

log = logging.getLogger(__name__)

GROUP = "shardpost-publish"
AT_ONCE = 4
# A first publish is one transaction, however many clients there are: the most that a broker allows
# by default (transaction.max.timeout.ms). A dead one holds its readers up only until the next run.
LONGEST_MS = 900_000


def publish(settings: Settings, snapshot: Snapshot) -> int:
    """Publish what changed since each partition's published snapshot.

    Return the number of records.
    """
    topic = settings.topic("share-holders")
    count = offsets.partition_counts(settings, [topic])[topic]
    published = published_numbers(settings, count)
    behind = [shard for shard, number in published.items() if number < snapshot.number]
    oldest = min((published[shard] for shard in behind), default=snapshot.number)
    if not behind or not _changed(settings, snapshot, oldest):
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        sent = pool.map(lambda shard: _publish_shard(settings, snapshot, shard), behind)
        return sum(sent)


def published_numbers(settings: Settings, count: int) -> dict[int, int]:
    """Return {partition: number of the snapshot published last}; 0 where none was."""
    topic = settings.topic("share-holders")
    reader = clients.consumer(settings, GROUP)
    try:
        places = [TopicPartition(topic, partition) for partition in range(count)]
        return {
            place.partition: _number(place)
            for place in reader.committed(places, timeout=settings.kafka_timeout)
        }
    except KafkaException as error:
        raise clients.unreachable(settings, error) from None
    finally:
        reader.close()


def _number(place: TopicPartition) -> int:
    return int(json.loads(place.metadata)["snapshot"]) if place.metadata else 0


def _changed(settings: Settings, snapshot: Snapshot, since: int) -> bool:
    """Tell whether any holder changed: nearly always known from the files' statistics alone."""
    sql = f"SELECT 1 FROM share_holders WHERE snapshot > {since} LIMIT 1"  # noqa: S608 - a number
    version = snapshot.tables[SHARE_HOLDERS.name]
    return bool(query(settings, sql, {SHARE_HOLDERS: version}).num_rows)


def _publish_shard(settings: Settings, snapshot: Snapshot, shard: int) -> int:
    topic = settings.topic("share-holders")
    producer = clients.transactional_producer(
        settings, f"{topic}/publish/{shard}", **{"transaction.timeout.ms": LONGEST_MS}
    )
    reader = clients.consumer(settings, GROUP)
    try:
        producer.init_transactions(settings.kafka_timeout)
        place = reader.committed([TopicPartition(topic, shard)], timeout=settings.kafka_timeout)[0]
        since = _number(place)
        if since >= snapshot.number:
            return 0
        return _send_difference(settings, producer, reader, snapshot, shard, since)
    except KafkaException as error:
        raise ShardpostError(
            f"{topic}[{shard}]: could not publish snapshot {snapshot.number}:"
            f" {error.args[0].str()}; the next compaction publishes it"
        ) from None
    finally:
        reader.close()


def _send_difference(
    settings: Settings,
    producer: Producer,
    reader: Consumer,
    snapshot: Snapshot,
    shard: int,
    since: int,
) -> int:
    topic = settings.topic("share-holders")
    sql = (
        "SELECT client, positions FROM share_holders"  # noqa: S608 - numbers
        f" WHERE shard = {shard} AND snapshot > {since}"
    )
    producer.begin_transaction()
    count = 0
    for batch in stream(settings, sql, {SHARE_HOLDERS: snapshot.tables[SHARE_HOLDERS.name]}):
        count += batch.num_rows
        for client, positions in zip(
            batch["client"].to_pylist(), batch["positions"].to_pylist(), strict=True
        ):
            _send(producer, topic, shard, client, _value(client, positions))
    metadata = json.dumps({"snapshot": snapshot.number})
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, shard, snapshot.number, metadata)],
        reader.consumer_group_metadata(),
        settings.kafka_timeout,
    )
    producer.commit_transaction(settings.kafka_timeout)
    log.info("%s[%d]: published %d records", topic, shard, count)
    return count


def _value(client: str, positions: list[str]) -> bytes | None:
    if not positions:
        return None
    form = {"Client": client, "Positions": positions}
    return json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode()


def _send(producer: Producer, topic: str, shard: int, key: str, value: bytes | None) -> None:
    while True:
        try:
            producer.produce(topic, key=key.encode(), value=value, partition=shard)
        except BufferError:
            producer.poll(0.1)
        else:
            return
