"""A database in a temporary file, for what grows with the number of letters.

SQLite removes the file as soon as it is made, so nothing is left of it, whatever ends the process.
It lies where `SQLITE_TMPDIR` or `TMPDIR` says, else in `/var/tmp`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition

# Of pages, and once more of what is being sorted; the rest is on disk.
MEMORY_BYTES = 4 << 20


def open_temporary(*tables: str) -> sqlite3.Connection:
    """Return a new database with these tables; nothing in it is ever rolled back."""
    database = sqlite3.connect("", isolation_level=None)
    database.execute(f"PRAGMA cache_size = -{MEMORY_BYTES >> 10}")  # in KiB, where it is negative
    for setting in ("journal_mode = OFF", "synchronous = OFF", "secure_delete = OFF"):
        database.execute(f"PRAGMA {setting}")
    database.execute("PRAGMA temp_store = FILE")
    for table in tables:
        database.execute(f"CREATE TABLE {table}")
    database.execute("BEGIN")
    return database


@contextmanager
def disk_errors_explained(partition: TopicPartition) -> Iterator[None]:
    """Raise ShardpostError where the file cannot be written for lack of room."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ShardpostError(
            f"{partition}: expected room for a temporary file, found: {error}; free some space, or"
            " name another folder in SQLITE_TMPDIR"
        ) from None
