"""What Spark is given beside itself: jars, our package as a .zip, a store, the class archive.

`make setup`, or `shardpost jars fetch` where a wheel is installed, puts the jars into
`share/shardpost/jars` of the virtual environment. The .zip is for executors without the package.

The class archive is for drivers (class-data sharing of the JVM): a short run spends much of its
time on loading and verifying some 15,000 classes. `make setup` runs a compaction that dumps them
when it ends (embedded/set_up.py); all jobs map the file. It is valid for one JVM and one set of
jars: its name has a hash of both. With another JVM the next job creates another one.
"""

import hashlib
import logging
import os
import shutil
import sys
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from shardpost.checkout import IS_CHECKOUT, PACKAGE
from shardpost.delta import object_store
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.spark.job import JobSpec, properties

log = logging.getLogger(__name__)

JARS = Path(sys.prefix) / "share" / "shardpost" / "jars"
# Of the package, what no executor needs.
_LEFT_OUT = {"__pycache__", "shipped"}


def jars_of(purpose: str) -> list[Path]:
    """Return the jars of a purpose (a file of `ivy/`), sorted; ShardpostError if there are none."""
    folder = JARS / purpose
    found = sorted(folder.glob("*.jar"))
    if not found:
        cure = "make setup" if IS_CHECKOUT else f"shardpost jars fetch {purpose}"
        raise ShardpostError(f"no jars in {folder}: run `{cure}`")
    return found


def spark_home() -> Path:
    """Return the folder of Spark in PySpark, without importing that."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None  # noqa: S101, PT018 - a dependency of ours
    return Path(found.origin).parent


def packages_zip(folder: Path) -> Path:
    """Write the package as `shardpost.zip` into the folder, atomically; return its path."""
    path = folder / "shardpost.zip"
    temporary = folder / f".shardpost.{os.getpid()}.zip"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and not _LEFT_OUT & set(file.relative_to(PACKAGE).parts):
                archive.write(file, file.relative_to(PACKAGE.parent))
    temporary.replace(path)
    return path


def store_conf(tables: Tables) -> dict[str, str]:
    """Return Spark's configuration for tables on a store; empty for tables on this machine.

    The keys are not among it. Spark takes them from the driver's environment into its Hadoop
    configuration, which goes to the executors, and which its UI and event log show redacted.
    """
    if (where := tables.address) is None:
        return {}
    kind = "Temporary" if where.token else "SimpleAWS"
    s3a = {
        "endpoint.region": where.region,
        "path.style.access": str(where.endpoint is not None).lower(),
        "connection.ssl.enabled": str(not where.is_plain).lower(),
        "aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{kind}CredentialsProvider",
        "connection.establish.timeout": f"{object_store.CONNECT_SECONDS}s",
        "connection.timeout": f"{object_store.REQUEST_SECONDS}s",
        **({"endpoint": where.endpoint} if where.endpoint else {}),
    }
    own = {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    return properties("store.conf") | own


ARCHIVE_FOLDER = Path(sys.prefix) / "share" / "shardpost"
# With the classes of a session; a JVM that started none dumps far less.
MIN_ARCHIVE_BYTES = 100_000_000
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
        new = self.dump_to
        if new and new.exists() and new.stat().st_size >= MIN_ARCHIVE_BYTES:
            with _logging_failure():
                new.replace(self.path)


def archive_options() -> tuple[str, ...]:
    """Return the JVM's option that reads the largest archive there is; none if there is none."""
    return () if _has_folder_in_class_path() else Archive(_largest(), None).jvm_options


@contextmanager
def class_archive(job: JobSpec) -> Iterator[Archive]:
    """Yield the largest archive to read, or a new one to create if this job would add to it."""
    full, small = _paths()
    if _has_folder_in_class_path():
        yield Archive(full.with_suffix(".none"), None)
        return
    own = full if job.has_own_class_archive else small
    if full.exists() or own.exists() or not os.access(ARCHIVE_FOLDER, os.W_OK):
        yield Archive(_largest(), None)
        return
    for left in ARCHIVE_FOLDER.glob("driver-classes.*.new"):
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
    return ARCHIVE_FOLDER / f"{name}.full.jsa", ARCHIVE_FOLDER / f"{name}.small.jsa"
