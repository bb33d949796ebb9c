"""Which of two records of a key is the later one, where retries are among them.

A retry stands where its origin stands (`seq`). Of those of one place an original that was decoded
is above all retries: whoever else failed on it, it is good. Of retries the one read later is above,
which is in the order of their offsets: those of a key lie in one partition.
"""

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
