"""The class archive of Spark's drivers (class-data sharing of the JVM).

A small run spends a third of its time on reading and verifying some 15,000 classes. The first job
after `make setup` writes them down when it ends, which takes it some ten seconds more; later ones
map the file. It is for one JVM and one set of jars; the JVM ignores it if they differ. Delete it,
and the next job makes a new one.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "share" / "shardpost" / "driver-classes.jsa"
SMALLEST_BYTES = 100_000_000  # of a session; a JVM that started none leaves much less


def use() -> tuple[str, ...]:
    """Return the JVM's option that reads the archive; none if there is no archive."""
    return (f"-XX:SharedArchiveFile={ARCHIVE}",) if ARCHIVE.exists() else ()


@contextmanager
def use_or_make() -> Iterator[tuple[str, ...]]:
    """Give the JVM's option that reads the archive, or that makes it if there is none.

    What the JVM made is kept if the body ends well, and if it is of a job that started Spark.
    """
    if ARCHIVE.exists() or not os.access(ARCHIVE.parent, os.W_OK):
        yield use()
        return
    made = ARCHIVE.with_suffix(f".{uuid.uuid4().hex}")
    try:
        yield (f"-XX:ArchiveClassesAtExit={made}",)
        if made.exists() and made.stat().st_size >= SMALLEST_BYTES:
            made.replace(ARCHIVE)
    finally:
        made.unlink(missing_ok=True)
