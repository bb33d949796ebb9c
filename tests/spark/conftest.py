"""One local Spark session for the tests that drive jobs in this process."""

import contextlib
import fcntl
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from pyspark.sql import SparkSession

from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.inputs import input_topics
from shardpost.settings import Settings
from shardpost.spark import driver
from shardpost.spark.jars import archive_options, jars_of
from shardpost.spark.submit import LOCAL_CONF, SHORT_RUN_JIT, submit, submit_conf
from shardpost.topics.creation import apply_topics
from tests.conftest import settings_of_its_own
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.interpreted_plans import INTERPRETED, compiled, is_compiled
from tests.support.kafka_configs import configure_topic
from tests.support.mail_server import MailServer, mail_server
from tests.support.object_store import ObjectStore, session_on_store
from tests.support.record_streams import Stream
from tests.support.schema_registry import Registry, schema_registry

# One session compiles what hundreds of jobs do. Once the default, 48 MB, is full, the JVM compiles
# nothing any more, and every run takes three times as long.
ROOM_FOR_CODE = "-XX:ReservedCodeCacheSize=512m"
# All cores are busy: threads of a collector only compete with other tests.
FEW_COLLECTIONS = ("-XX:-UseParallelGC", "-XX:+UseSerialGC", "-Xmn1g")


@pytest.fixture(scope="session", autouse=True)
def archive(kafka: Settings, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Have a first job leave the archive of classes, with which all later ones start sooner.

    Of several processes of tests, one makes it and the others wait.
    """
    with (tmp_path_factory.getbasetemp().parent / "class-archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive_options():
            first = settings_of_its_own(kafka, tmp_path_factory.mktemp("first"))
            apply_topics(installed(first))
            assert submit(installed(first), COMPACT_POSITIONS) == (0, ANY)
    return archive_options()


@pytest.fixture(scope="session")
def known_classes() -> None:
    """Have Python ask the JVM once for a class or package.

    It asks at each use, and for what is no class (`org`, `org.apache`) the JVM looks into all jars.
    """
    for kind in (JVMView, JavaPackage, JavaClass):
        kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def answer(asked: Any, name: str) -> Any:
        found = ask(asked, name)
        if isinstance(found, JavaPackage | JavaClass | JavaMember):
            vars(asked)[name] = found
        return found

    return answer


@pytest.fixture(scope="session")
def spark(
    archive: tuple[str, ...], known_classes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Give the session that spark/driver.py will find."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    conf = {
        **submit_conf(
            *SHORT_RUN_JIT,
            ROOM_FOR_CODE,
            *FEW_COLLECTIONS,
            *archive,
            more_jars=[jar for purpose in ("jdbc", "s3", "avro") for jar in jars_of(purpose)],
        ),
        **INTERPRETED,
        "spark.default.parallelism": str(up_to(2, 1)),
        **LOCAL_CONF,
        "spark.driver.memory": "2g",
        # Of 16 MB, as by default, many are left until a full collection.
        "spark.buffer.pageSize": "1m",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    with contextlib.chdir(tmp_path_factory.mktemp("jvm")):  # Spark leaves empty folders there
        builder.getOrCreate()
    yield driver.start_session("tests")
    driver.start_session("tests").stop()


@pytest.fixture(autouse=True)
def tables_at(
    tables_at: ObjectStore | None, request: pytest.FixtureRequest
) -> Iterator[ObjectStore | None]:
    """Give the same, and have the one session know the store as a job of its own would."""
    with contextlib.ExitStack() as stack:
        if tables_at is not None:
            stack.enter_context(session_on_store(request.getfixturevalue("spark"), tables_at))
        yield tables_at


@pytest.fixture(autouse=True)
def plans(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the plans of some tests compiled."""
    with contextlib.ExitStack() as stack:
        if "spark" in request.fixturenames and is_compiled(request.node.nodeid):
            stack.enter_context(compiled(request.getfixturevalue("spark")))
        yield


@pytest.fixture
def fresh(settings: Settings, spark: SparkSession) -> Callable[[], Settings]:
    """Give settings with empty tables and new topics, as often as asked."""
    del spark
    count = itertools.count()

    def make() -> Settings:
        topics = {name: f"{topic}-{next(count)}" for name, topic in settings.topics.items()}
        changed: dict[str, object] = {"topics": topics}
        home = Path(tempfile.mkdtemp(dir=settings.home, prefix="tücke und leere "))
        if settings.is_on_store:
            changed["tables"] = f"{settings.tables_root}/{next(count)}"
        return _with_topics(settings.model_copy(update={"home": home, **changed}))

    return make


@pytest.fixture
def stream(fresh: Callable[[], Settings]) -> Stream:
    """Give a stream of records to empty tables and new topics."""
    return Stream(fresh())


@pytest.fixture(scope="module")
def shared(
    kafka: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Give settings with empty tables and new topics that all tests of a file share."""
    del spark
    return _with_topics(settings_of_its_own(kafka, tmp_path_factory.mktemp("shared")))


def _with_topics(settings: Settings) -> Settings:
    apply_topics(installed(settings))
    _keep_forever(settings, settings.topic("retries"))
    for topic in input_topics(installed(settings).kafka):
        _keep_superseded(settings, topic)
    return settings


def _keep_forever(settings: Settings, topic: str) -> None:
    """Keep Kafka from deleting by time: histories of tests are of years past."""
    configure_topic(settings, topic, {"retention.ms": "-1"})


def _keep_superseded(settings: Settings, topic: str) -> None:
    """Keep Kafka from compacting: with times far apart, each record would close a segment."""
    configure_topic(settings, topic, {"segment.ms": str(2**63 - 1)})


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Give a schema registry that all tests of a process share."""
    with schema_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def server() -> Iterator[MailServer]:
    """Give a mail server that misbehaves as the test says."""
    with mail_server() as found:
        yield found
