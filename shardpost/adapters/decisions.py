"""The topic `decisions`: written within a transaction of whoever decides, and read."""

from collections.abc import Iterator

from shardpost.adapters.kafka import partition_counts, read_to_end
from shardpost.adapters.messages import headers_of
from shardpost.domain.decisions import Decision, decode
from shardpost.domain.records import Outgoing
from shardpost.domain.topics import DECISIONS
from shardpost.settings import Settings


def written(settings: Settings, decision: Decision, headers: dict[str, bytes]) -> Outgoing:
    """Return the record of a decision."""
    topic = settings.topic(DECISIONS.name)
    return Outgoing(topic, decision.about, decision.value(), [*headers.items()])


def every(settings: Settings) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield all decisions that are kept, with their headers."""
    topic = settings.topic(DECISIONS.name)
    for partition in range(partition_counts(settings, [topic])[topic]):
        yield from of_partition(settings, partition, None)


def of_partition(
    settings: Settings, partition: int, start: int | None
) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield the decisions of one partition from that offset on, with their headers."""
    for message in read_to_end(settings, settings.topic(DECISIONS.name), partition, start=start):
        decision = decode(message.key(), message.value())
        if decision is not None:
            headers = headers_of(message)
            yield decision, {name: raw for name, raw in headers if isinstance(raw, bytes)}
