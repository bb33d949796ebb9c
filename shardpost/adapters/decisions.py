"""The topic `decisions`: written within a transaction of whoever decides, and read."""

from collections.abc import Iterator

from shardpost.adapters.fenced import Write
from shardpost.adapters.kafka import header_bytes, partition_counts, read_to_end
from shardpost.domain.decisions import Decision, decode
from shardpost.domain.topics import DECISIONS
from shardpost.settings import Settings


def written(settings: Settings, decision: Decision, headers: dict[str, bytes]) -> Write:
    """Return the record of a decision."""
    topic = settings.topic(DECISIONS.name)
    return Write(topic, decision.about, decision.value(), headers=headers)


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
            yield decision, header_bytes(message)
