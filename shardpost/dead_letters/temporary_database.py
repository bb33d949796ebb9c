"""A database in a temporary file: what goes with the number of letters is there, not in memory.

SQLite takes the file away as soon as it is made, so nothing is left of it, whatever ends the
process. It lies where `SQLITE_TMPDIR` or `TMPDIR` says, else in `/var/tmp`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from shardpost.errors import ShardpostError

# Of pages, and once more of what is being sorted; the rest is on disk.
MEMORY_BYTES = 4 << 20


def scratch(*tables: str) -> sqlite3.Connection:
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
def on_disk(what: str) -> Iterator[None]:
    """Say what to do where such a file cannot be written; `what` is what it is about."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ShardpostError(
            f"{what}: expected room for a temporary file, found: {error}; make some, or name"
            " another folder in SQLITE_TMPDIR"
        ) from None
