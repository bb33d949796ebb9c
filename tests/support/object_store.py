"""An object store of this process of tests: S3Proxy over a folder, on a free port of its own."""

import hashlib
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from shardpost.delta import storage
from shardpost.delta.table import Table
from shardpost.embedded import daemons
from shardpost.embedded.broker import find_java
from shardpost.settings import Settings
from shardpost.spark.jars import jars_of, store_conf
from shardpost.spark.job import terminate_with_parent
from tests.support.installed import installed
from tests.support.job_process import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The only bucket that is there.
BUCKET = "tables"
KEY, SECRET = "shardpost", "of the tests alone"
PROPERTIES = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}
"""
# It does little, and is there soon.
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def store_environ(port: int, **given: str) -> dict[str, str]:
    """Return the variables by which a store on that port is reached."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    } | given


class _Running:
    """The store of the test that runs."""

    store: "ObjectStore | None" = None


def folder_of(settings: Settings, table: Table) -> Path:
    """Return the folder of a table on a disk, also where it is a store's."""
    path = storage.path_of(installed(settings).tables, table)
    if not settings.is_on_store:
        return Path(path)
    assert _Running.store is not None
    return _Running.store.folder / path.removeprefix("s3://")


@dataclass
class ObjectStore:
    """A store that runs: its port, its folder, and its process."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which it is reached."""
        return store_environ(self.port)

    def place(self) -> dict[str, object]:
        """Return values of settings whose tables are in a folder there that nobody else has."""
        return {"tables": f"s3://{BUCKET}/{uuid.uuid4().hex}", "store": self.environ}

    @contextmanager
    def has_all_tables(self) -> Iterator[None]:
        """Have all settings that are made meanwhile, and name no tables, have theirs here."""
        made, validated = Settings.__init__, Settings.model_validate

        def place(home: object) -> dict[str, object]:
            name = hashlib.sha256(str(home).encode()).hexdigest()[:16]
            return {"tables": f"s3://{BUCKET}/{name}", "store": self.environ}

        def init(own: Settings, **given: Any) -> None:
            made(own, **(given if given.get("tables") else given | place(given.get("home"))))

        def validate(given: Any, **more: Any) -> Settings:
            place_ = {} if given.get("tables") else place(given.get("home"))
            return validated({**given, **place_}, **more)

        with (
            patch.object(Settings, "__init__", init),
            patch.object(Settings, "model_validate", validate),
            patch.object(_Running, "store", self),
        ):
            yield

    def paths(self) -> list[str]:
        """Return all that is stored, by its path within the bucket."""
        bucket = self.folder / BUCKET
        return sorted(str(p.relative_to(bucket)) for p in bucket.rglob("*") if p.is_file())


@contextmanager
def object_store(home: Path, port: int | None = None) -> Iterator[ObjectStore]:
    """Run a store with an empty bucket, with its data in a folder, until the end."""
    port = port or daemons.choose_port()
    (home / "data" / BUCKET).mkdir(parents=True)
    given = {"port": port, "key": KEY, "secret": SECRET, "folder": home / "data"}
    (home / "s3proxy.properties").write_text(PROPERTIES.format(**given))
    [jar] = jars_of("s3proxy")
    with (home / "s3proxy.log").open("wb") as log:
        process = subprocess.Popen(
            [find_java(), *JVM, "-jar", str(jar), "--properties", "s3proxy.properties"],
            cwd=home,
            stdout=log,
            stderr=log,
            preexec_fn=terminate_with_parent,
        )
    try:
        wait_for(lambda: not daemons.port_is_free(port), "the object store")
        yield ObjectStore(port, home / "data", process)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def session_on_store(spark: "SparkSession", store: ObjectStore) -> Iterator[None]:
    """Give a session that runs what `spark-submit` and the environment give one of a job."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    conf = store_conf(installed(Settings.model_validate(store.place())).tables)
    given = {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in conf.items():
        if name not in given:
            hadoop.set(name.removeprefix("spark.hadoop."), value)
    hadoop.set("fs.s3a.access.key", KEY)
    hadoop.set("fs.s3a.secret.key", SECRET)
    for name, value in given.items():
        spark.conf.set(name, value)
    yield
    for name, was in before.items():
        spark.conf.unset(name) if was is None else spark.conf.set(name, was)
