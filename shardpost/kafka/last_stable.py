"""Last stable offsets below the high watermarks, of many partitions in a few requests."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import KafkaUnreachableError, admin
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings

AT_ONCE = 2_000


class Ends(NamedTuple):
    """{partition: end}, and {partition: why it is not known}."""

    known: dict[TopicPartition, int]
    unknown: dict[TopicPartition, str]


def ends_of(settings: Settings, partitions: Iterable[TopicPartition], *, committed: bool) -> Ends:
    """Return the ends of partitions; with `committed` the last stable offsets."""
    client = admin(settings)  # it has to outlive what it asks for
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked, found = list(partitions), Ends({}, {})
    for start in range(0, len(asked), AT_ONCE):
        for partition, end in _asked(client, settings, asked[start : start + AT_ONCE], level):
            if isinstance(end, int):
                found.known[partition] = end
            else:
                found.unknown[partition] = end
    return found


def _asked(
    client: AdminClient, settings: Settings, asked: list[TopicPartition], level: IsolationLevel
) -> Iterator[tuple[TopicPartition, int | str]]:
    latest = {confluent_kafka.TopicPartition(*one): OffsetSpec.latest() for one in asked}  # type: ignore[no-untyped-call]
    if not latest:
        return
    futures = client.list_offsets(
        latest, isolation_level=level, request_timeout=settings.kafka_timeout
    )
    for one, future in futures.items():
        try:
            yield TopicPartition(one.topic, one.partition), int(future.result().offset)
        except KafkaException as error:
            yield TopicPartition(one.topic, one.partition), error.args[0].str()


def first_time(settings: Settings, partition: TopicPartition, offset: int) -> int | None:
    """Return the timestamp of the first record from an offset on, in ms, committed or not.

    None if there is none, or the partition cannot be read now.
    """
    try:
        first = next(read_to_end(settings, partition, start=offset, uncommitted=True), None)
    except KafkaUnreachableError:
        return None
    return None if first is None else int(first.timestamp()[1])
