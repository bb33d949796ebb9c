"""The class archive of Spark's drivers (class-data sharing of the JVM).

A short run spends much of its time on loading and verifying some 15,000 classes. `make setup` runs
a compaction that dumps them when it ends (embedded/set_up.py); all jobs map the file. It is
valid for one JVM and one set of jars: its name has a hash of both. With another JVM the next job
creates another one; a compaction then once more, since it loads half as many classes again as any
other job. (docs/performance.md has the figures.)
"""

import hashlib
import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shardpost.spark.jars import jars_of
from shardpost.spark.job_spec import JobSpec

log = logging.getLogger(__name__)

FOLDER = Path(sys.prefix) / "share" / "shardpost"
MIN_BYTES = 100_000_000  # with the classes of a session; a JVM that started none dumps far less
ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True)
class Archive:
    """The archive that a job's JVM reads; or, with `dump_to`, the one that it creates."""

    path: Path
    dump_to: Path | None

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """The JVM's options; none if there is no archive to read."""
        if self.dump_to:
            return (f"-XX:ArchiveClassesAtExit={self.dump_to}",)
        return (f"-XX:SharedArchiveFile={self.path}",) if self.path.exists() else ()

    def keep(self) -> None:
        """Keep what the JVM dumped, if it started Spark; to be called when the job succeeded."""
        if self.dump_to and self.dump_to.exists() and self.dump_to.stat().st_size >= MIN_BYTES:
            with _logging_failure():
                self.dump_to.replace(self.path)


def read_options() -> tuple[str, ...]:
    """Return the JVM's option that reads the largest archive there is; none if there is none."""
    return () if _has_folder_in_class_path() else Archive(_largest(), None).jvm_options


@contextmanager
def read_or_create(job: JobSpec) -> Iterator[Archive]:
    """Give the largest archive to read, or a new one to create where this job would add to it."""
    full, small = _paths()
    if _has_folder_in_class_path():
        yield Archive(full.with_suffix(".none"), None)
        return
    own = full if job.has_own_class_archive else small
    if full.exists() or own.exists() or not os.access(FOLDER, os.W_OK):
        yield Archive(_largest(), None)
        return
    for left in FOLDER.glob("driver-classes.*.new"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    new = own.with_suffix(f".{uuid.uuid4().hex}.new")
    try:
        yield Archive(own, new)
    finally:
        with _logging_failure():
            new.unlink(missing_ok=True)


@contextmanager
def _logging_failure() -> Iterator[None]:
    """Log what fails once the job has done its work: without an archive the next one is slower."""
    try:
        yield
    except OSError as error:
        log.warning("the class archive of Spark's drivers was not kept: %s", error)


def _has_folder_in_class_path() -> bool:
    """Tell whether Spark puts its folder of settings there: then the JVM has no archive."""
    return bool(os.environ.get("SPARK_CONF_DIR"))


def _largest() -> Path:
    full, small = _paths()
    return full if full.exists() else small


def _paths() -> tuple[Path, Path]:
    """Return the paths of a compaction's archive, and of any other job's."""
    home = os.environ.get("JAVA_HOME")
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    modified = java.stat().st_mtime_ns if java.exists() else 0
    valid_for = "\n".join((str(java), str(modified), *map(str, jars_of("spark"))))
    name = f"driver-classes.{hashlib.sha256(valid_for.encode()).hexdigest()[:16]}"
    return FOLDER / f"{name}.full.jsa", FOLDER / f"{name}.small.jsa"
