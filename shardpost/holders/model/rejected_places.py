"""The places of rejected records, and ranges of them that one transaction can hold."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardpost.delta.sql import text_literal
from shardpost.kafka import batches

# What a record with headers is taken for, besides key and value: Kafka bounds them by a megabyte,
# and a letter keeps 32 kB.
HEADERS_BYTES = 16 << 10


class Place(NamedTuple):
    """Where a rejected record stands among all: by the snapshot that read it, and coordinates."""

    snapshot: int
    topic: str
    partition: int
    offset: int

    def sql_of_later(self) -> str:
        """Return the condition of what stands after it."""
        return self._sql_of_those(">")

    def sql_of_earlier(self) -> str:
        """Return the condition of what stands before it."""
        return self._sql_of_those("<")

    def _sql_of_those(self, beyond: str) -> str:
        topic = text_literal(self.topic)
        return (
            f"(snapshot {beyond} {self.snapshot} OR (snapshot = {self.snapshot}"
            f" AND (topic {beyond} {topic} OR (topic = {topic}"
            f' AND ("partition" {beyond} {self.partition} OR ("partition" = {self.partition}'
            f' AND "offset" {beyond} {self.offset}))))))'
        )


class PlaceRange(NamedTuple):
    """The records from one place to another, both among them, and whether none come after them."""

    first: Place
    last: Place
    is_last: bool

    def sql(self) -> str:
        """Return its condition; the numbers stand first, by which files are passed over."""
        return (
            f"snapshot BETWEEN {self.first.snapshot} AND {self.last.snapshot}"
            f" AND NOT {self.first.sql_of_earlier()} AND NOT {self.last.sql_of_later()}"
        )


def place_ranges(records: Iterable[tuple[Place, int, int]]) -> Iterator[PlaceRange]:
    """Yield ranges of records given in order as (place, bytes, number of headers).

    A range has no more records and bytes than a batch (kafka/batches.py), or a single record.
    """
    first = last = None
    count = size = 0
    for place, bytes_, headers in records:
        bytes_ += HEADERS_BYTES if headers else 0
        is_full = count == batches.MAX_RECORDS or size + bytes_ > batches.MAX_BYTES
        if first and last and is_full:
            yield PlaceRange(first, last, is_last=False)
            first, count, size = None, 0, 0
        first, last = first or place, place
        count, size = count + 1, size + bytes_
    if first and last:
        yield PlaceRange(first, last, is_last=True)
