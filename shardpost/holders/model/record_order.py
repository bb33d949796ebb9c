"""Which of two records of a key is the later one, where retries are among them.

A retry is ordered with its origin (`seq`). Of one origin, the decodable original is above all its
retries: whoever else failed on it, it is good. Of its retries the one that was read later is above;
those of a key lie in one partition, so that is the order of their offsets.
"""

from shardpost.kafka.partitioning import murmur2

# `seq` orders all records of a key: the rank of the partition above, the offset below.
OFFSET_BITS = 48
# Added to the rank of partitions that Kafka's partitioner chose for the key.
KEYED_RANK = 1 << 14
# Compared as tuples; orders the decodable records of one key.
Order = tuple[int, bool, int, int]


def order_of(seq: int, snapshot: int, retry_offset: int | None) -> Order:
    """Return the order of a record; `retry_offset` is None for an original."""
    return seq, retry_offset is None, snapshot, retry_offset or 0


def is_retry(order: Order) -> bool:
    """Tell whether the record of an order is a retry."""
    return not order[1]


def newest_first(alias: str) -> str:
    """Return that order for a SQL ORDER BY over columns of a history, the latest record first."""
    columns = ("seq", "retry_offset IS NULL", "snapshot", "retry_offset")
    return ", ".join(f"{alias}.{column} DESC" for column in columns)


def partition_rank(key: str, partition: int, partitions: int) -> int:
    """Return how new a partition is for a key; the key's current partition ranks highest.

    Partitions are only ever added. A key lies in `hash % n` for each number of partitions n that
    the topic had, so a partition's rank is KEYED_RANK + the largest such n. One to which Kafka's
    partitioner never sends the key (its producer chose it) ranks below all others, by its number.
    """
    hashed = murmur2(key.encode()) & 0x7FFFFFFF
    ranks = (KEYED_RANK + n for n in range(partitions, 0, -1) if hashed % n == partition)
    return next(ranks, partition)


def seq_of(key: str, partition: int, offset: int, partitions: int) -> int:
    """Return the number by which the records of one key are ordered, later ones higher."""
    return partition_rank(key, partition, partitions) << OFFSET_BITS | offset


def is_in_current_partition(seq: int, partitions: int) -> bool:
    """Tell whether a record lies where Kafka puts its key now that there are so many partitions."""
    return seq >= (KEYED_RANK + partitions) << OFFSET_BITS
