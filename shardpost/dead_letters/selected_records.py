"""Reading selected records of a partition a second time."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Record
from shardpost.settings import Settings

T = TypeVar("T")


def read_selected(
    settings: Settings,
    partition: TopicPartition,
    selected: Iterable[T],
    offset_of: Callable[[T], int],
) -> Iterator[tuple[Record, T]]:
    """Yield each selected item with its record; both are in the order of their offsets.

    One that the log cleaner has removed is left out: there is a newer one of its key.
    """
    items = iter(selected)
    item = next(items, None)
    if item is None:
        return
    for message in read_to_end(settings, partition, start=offset_of(item)):
        offset = message.offset() or 0
        while item is not None and offset_of(item) < offset:
            item = next(items, None)
        if item is not None and offset_of(item) == offset:
            yield record_of(message), item
            item = next(items, None)
        if item is None:
            return
