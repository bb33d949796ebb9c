"""Which of two records of a key is the later one, where retries are among them.

A retry stands where its origin stands (`seq`). Of those of one place an original that was decoded
is above all retries: whoever else failed on it, it is good. Of retries the one read later is above,
which is in the order of their offsets: those of a key lie in one partition.
"""

from shardpost.kafka.partitioning import murmur2

# One number, `seq`, orders all records of a key: the rank of the partition above, the offset below.
OFFSET_BITS = 48
HOME = 1 << 14
# Compared as tuples; orders the decodable records of one key.
Order = tuple[int, bool, int, int]


def order_of(seq: int, snapshot: int, retry_offset: int | None) -> Order:
    """Return a record's place; `retry_offset` is None for an original."""
    return seq, retry_offset is None, snapshot, retry_offset or 0


def is_retry(order: Order) -> bool:
    """Tell whether the record of an order is a retry."""
    return not order[1]


def newest_first(alias: str) -> str:
    """Return that order for a SQL ORDER BY, over columns of a history, the latest record first."""
    columns = ("seq", "retry_offset IS NULL", "snapshot", "retry_offset")
    return ", ".join(f"{alias}.{column} DESC" for column in columns)


def home_rank(key: str, partition: int, partitions: int) -> int:
    """Return how new a home the partition is for the key; the newest home ranks highest.

    Partitions are only ever added. A key lies in `hash % n` for each number of partitions n that
    the topic had, so a home's rank is HOME + the largest such n. A partition that is nobody's home
    (its producer placed the record by hand) ranks below all homes, by its number.
    """
    hashed = murmur2(key.encode()) & 0x7FFFFFFF
    homes = (HOME + n for n in range(partitions, 0, -1) if hashed % n == partition)
    return next(homes, partition)


def seq_of(key: str, partition: int, offset: int, partitions: int) -> int:
    """Return the number by which the records of one key are ordered, later ones higher."""
    return home_rank(key, partition, partitions) << OFFSET_BITS | offset
