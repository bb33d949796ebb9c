"""Which of two records of a key is the later one, where retries are among them.

A retry is ordered with its origin (`seq`). Of one origin, the decodable original is above all its
retries: whoever else failed on it, it is good. Of its retries the one that was read later is above;
those of a key lie in one partition, so that is the order of their offsets (and of two retry topics,
of their names, so that it is an order). Above all of them is the
record by which a reconciliation closed the key there: the origin was superseded by one that nobody
can read any more.
"""

from dataclasses import dataclass

from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import RecordKind
from shardpost.kafka.coordinates import Offsets
from shardpost.kafka.partitioning import murmur2

# Compared as tuples; orders the decodable records of one key.
Order = tuple[int, int, int, int]

_RETRY, _ORIGINAL, _RECONCILED = range(3)
# Columns of a history by which the retries of one origin are ordered that one run read.
RETRIES_READ_TOGETHER = ("retry_offset", "retry_topic", "retry_partition")


@dataclass(frozen=True)
class SeqLayout:
    """How `seq`, the number that orders all records of a key, is made up in one generation.

    From `base` on: the rank of the partition above, the offset (of `offset_bits`) below.
    `keyed_rank` is added to the rank of partitions that Kafka's partitioner chose for the key.
    """

    base: int
    keyed_rank: int
    offset_bits: int

    def seq(self, rank: int, offset: int) -> int:
        """Return the number of a record."""
        return self.base + (rank << self.offset_bits | offset)


# A topic has so many partitions at most: one below what 12 bits hold.
MAX_PARTITIONS = (1 << 12) - 1
# The first generation of a topic; its numbers are below those of all others.
_FIRST = SeqLayout(base=0, keyed_rank=1 << 14, offset_bits=48)
# A later one has 13 bits for the rank and 42 for the offset, so that 64 bits hold many.
_GENERATION_BITS = 13 + 42
_SECOND_BASE = (_FIRST.keyed_rank + MAX_PARTITIONS + 1) << _FIRST.offset_bits
MAX_GENERATION = ((1 << 63) - _SECOND_BASE) >> _GENERATION_BITS


def layout_of(generation: int) -> SeqLayout:
    """Return how numbers are made up in a generation of a topic: 0, and one more each time.

    All of a generation are above those of the generations before it.
    """
    if generation == 0:
        return _FIRST
    base = _SECOND_BASE + (generation - 1 << _GENERATION_BITS)
    return SeqLayout(base, keyed_rank=1 << 12, offset_bits=42)


def require_orderable(topic: str, generation: int, ends: Offsets) -> None:
    """Raise ShardpostError if the topic's records cannot be numbered in that generation."""
    own, layout = ends.get(topic, {}), layout_of(generation)
    limits = (
        (generation, MAX_GENERATION, "times recreated"),
        (len(own), MAX_PARTITIONS, "partitions"),
        (max(own.values(), default=0), 1 << layout.offset_bits, "as the highest end offset"),
    )
    for found, most, what in limits:
        if found > most:
            raise ShardpostError(
                f"topic {topic}: expected at most {most} {what}, found {found}: its records cannot"
                " be put in order (docs/decisions/0003-one-number-orders-a-key.md)"
            )


def order_of(seq: int, snapshot: int, retry_offset: int | None, kind: str) -> Order:
    """Return the order of a decodable record; `retry_offset` is None for an original."""
    standing = _ORIGINAL if retry_offset is None else _RETRY
    if kind == RecordKind.RECONCILED:
        standing = _RECONCILED
    return seq, standing, snapshot, retry_offset or 0


def is_retry(order: Order) -> bool:
    """Tell whether the record of an order is a retry."""
    return order[1] == _RETRY


def is_reconciled(order: Order) -> bool:
    """Tell whether the record of an order is one by which a reconciliation closed its key."""
    return order[1] == _RECONCILED


def newest_first(alias: str) -> str:
    """Return that order for a SQL ORDER BY over columns of a history, the latest record first."""
    is_reconciled = f"{alias}.kind = '{RecordKind.RECONCILED}' DESC"
    own = ("retry_offset IS NULL", "snapshot", *RETRIES_READ_TOGETHER)
    rest = (f"{alias}.{column} DESC" for column in own)
    return ", ".join((f"{alias}.seq DESC", is_reconciled, *rest))


def partition_rank(key: str, partition: int, partitions: int, generation: int = 0) -> int:
    """Return how new a partition is for a key; the key's current partition ranks highest.

    Partitions are only ever added. A key lies in `hash % n` for each number of partitions n that
    the topic had, so a partition's rank is `keyed_rank` + the largest such n. One to which Kafka's
    partitioner never sends the key (its producer chose it) ranks below all others, by its number.
    """
    hashed, keyed = murmur2(key.encode()) & 0x7FFFFFFF, layout_of(generation).keyed_rank
    ranks = (keyed + n for n in range(partitions, 0, -1) if hashed % n == partition)
    return next(ranks, partition)


def seq_of(key: str, partition: int, offset: int, partitions: int, generation: int = 0) -> int:
    """Return the number by which the records of one key are ordered, later ones higher."""
    rank = partition_rank(key, partition, partitions, generation)
    return layout_of(generation).seq(rank, offset)


def is_in_current_partition(seq: int, partitions: int, generation: int = 0) -> bool:
    """Tell whether a record lies where Kafka puts its key now that there are so many partitions."""
    layout = layout_of(generation)
    return seq >= layout.seq(layout.keyed_rank + partitions, 0)
