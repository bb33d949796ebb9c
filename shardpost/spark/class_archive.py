"""The class archive of Spark's drivers (class-data sharing of the JVM).

A small run spends a third of its time on reading and verifying some 15,000 classes. The first job
after `make setup` writes them down when it ends, which takes it some twenty seconds more; later
ones map the file. A compaction loads half as many again as any other job, so the first one makes
an archive of its own, and all jobs read that one from then on. An archive is for one JVM and one
set of jars: its name says which, and another JVM makes another one.
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

from shardpost.spark.jars import spark_jars
from shardpost.spark.job_spec import JobSpec

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
    """Return the JVM's option that reads the best archive there is; none if there is none."""
    return Archive(_best(), None).java


@contextmanager
def use_or_make(job: JobSpec) -> Iterator[Archive]:
    """Give the best archive to be read, or one to be made and kept if this job makes a better."""
    full, small = _paths()
    own = full if job.has_own_class_archive else small
    if full.exists() or own.exists() or not os.access(FOLDER, os.W_OK):
        yield Archive(_best(), None)
        return
    _clear_abandoned()
    made = own.with_suffix(f".{uuid.uuid4().hex}.new")
    try:
        yield Archive(own, made)
    finally:
        made.unlink(missing_ok=True)


def _best() -> Path:
    full, small = _paths()
    return full if full.exists() else small


def _paths() -> tuple[Path, Path]:
    """Return where a compaction's archive is, and where that of another job."""
    home = os.environ.get("JAVA_HOME")
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    named = "\n".join((str(java), str(changed), *map(str, spark_jars())))
    of = f"driver-classes.{hashlib.sha256(named.encode()).hexdigest()[:16]}"
    return FOLDER / f"{of}.full.jsa", FOLDER / f"{of}.small.jsa"


def _clear_abandoned() -> None:
    """Remove what jobs that were killed left half made."""
    for left in FOLDER.glob("driver-classes.*.new"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
