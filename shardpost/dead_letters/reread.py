"""Reading chosen records of a partition once more."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Record
from shardpost.settings import Settings

T = TypeVar("T")


def reread(
    settings: Settings,
    topic: str,
    partition: int,
    wanted: Iterable[T],
    offset_of: Callable[[T], int],
) -> Iterator[tuple[Record, T]]:
    """Yield what is wanted with its record, by ascending offsets.

    One that the cleaner took is left out: something newer is there.
    """
    left = iter(wanted)
    one = next(left, None)
    if one is None:
        return
    for message in read_to_end(settings, TopicPartition(topic, partition), start=offset_of(one)):
        offset = message.offset() or 0
        while one is not None and offset_of(one) < offset:
            one = next(left, None)
        if one is not None and offset_of(one) == offset:
            yield record_of(message), one
            one = next(left, None)
        if one is None:
            return
