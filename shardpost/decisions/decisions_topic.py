"""The topic `decisions`: its records are written within the transactions of the features."""

from collections.abc import Iterator

from shardpost.decisions.decision import Decision, decode
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import headers_of
from shardpost.kafka.offsets import partition_counts
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings


def written(settings: Settings, decision: Decision, headers: dict[str, bytes]) -> Outgoing:
    """Return the record of a decision."""
    topic = settings.topic("decisions")
    return Outgoing(topic, decision.about, decision.value(), [*headers.items()])


def list_all(settings: Settings) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield all decisions that are kept, with their headers."""
    topic = settings.topic("decisions")
    for partition in range(partition_counts(settings, [topic])[topic]):
        yield from of_partition(settings, partition, None)


def of_partition(
    settings: Settings, partition: int, start: int | None
) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield the decisions of one partition from that offset on, with their headers."""
    for message in read_to_end(
        settings, TopicPartition(settings.topic("decisions"), partition), start=start
    ):
        decision = decode(message.key(), message.value())
        if decision is not None:
            headers = headers_of(message)
            yield decision, {name: raw for name, raw in headers if isinstance(raw, bytes)}
