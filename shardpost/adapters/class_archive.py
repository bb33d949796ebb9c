"""The class archive of Spark's drivers (class-data sharing of the JVM).

A small run spends a third of its time on reading and verifying some 15,000 classes. The first job
after `make setup` writes them down when it ends, which takes it some ten seconds more; later ones
map the file. An archive is for one JVM and one set of jars: its name says which, and another JVM
makes another one.
"""

import hashlib
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shardpost.adapters.jars import spark_jars

FOLDER = Path(sys.prefix) / "share" / "shardpost"
SMALLEST_BYTES = 100_000_000  # of a session; a JVM that started none leaves much less
ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True)
class Archive:
    """The archive that a job's JVM reads, or makes: `java` is the option for it."""

    path: Path
    made: Path | None

    @property
    def java(self) -> tuple[str, ...]:
        """Return the JVM's options."""
        if self.made:
            return (f"-XX:ArchiveClassesAtExit={self.made}",)
        return (f"-XX:SharedArchiveFile={self.path}",) if self.path.exists() else ()

    def keep(self) -> None:
        """Keep what the JVM made, if its job started Spark; for jobs that ended well."""
        if self.made and self.made.exists() and self.made.stat().st_size >= SMALLEST_BYTES:
            self.made.replace(self.path)


def use() -> tuple[str, ...]:
    """Return the JVM's option that reads the archive; none if there is no archive."""
    return Archive(_path(), None).java


@contextmanager
def use_or_make() -> Iterator[Archive]:
    """Give the archive to be read, or to be made and kept if there is none."""
    path = _path()
    if path.exists() or not os.access(FOLDER, os.W_OK):
        yield Archive(path, None)
        return
    _clear_abandoned()
    made = path.with_suffix(f".{uuid.uuid4().hex}.new")
    try:
        yield Archive(path, made)
    finally:
        made.unlink(missing_ok=True)


def _path() -> Path:
    home = os.environ.get("JAVA_HOME")
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    named = "\n".join((str(java), str(changed), *map(str, spark_jars())))
    return FOLDER / f"driver-classes.{hashlib.sha256(named.encode()).hexdigest()[:16]}.jsa"


def _clear_abandoned() -> None:
    """Remove what jobs that were killed left half made."""
    for left in FOLDER.glob("driver-classes.*.new"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
