"""Reading chosen records of a partition once more."""

from collections.abc import Iterator, Sequence

from shardpost.adapters.kafka import read_to_end
from shardpost.adapters.messages import record_of
from shardpost.domain.records import Record
from shardpost.settings import Settings


def reread(
    settings: Settings, topic: str, partition: int, offsets: Sequence[int]
) -> Iterator[Record]:
    """Yield the records at those ascending offsets; one that the cleaner took is left out."""
    wanted = iter(offsets)
    next_one = next(wanted, None)
    if next_one is None:
        return
    for message in read_to_end(settings, topic, partition, start=next_one):
        offset = message.offset() or 0
        while next_one is not None and next_one < offset:
            next_one = next(wanted, None)
        if next_one == offset:
            yield record_of(message)
            next_one = next(wanted, None)
        if next_one is None:
            return
