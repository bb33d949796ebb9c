"""What tests of several tiers share: the tiers themselves, and one broker for the whole run."""

import gc
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from xdist.remote import Producer
from xdist.workermanage import NodeManager, WorkerController

from shardpost.embedded import broker, daemons
from shardpost.settings import Settings, load
from shardpost.settings.loading import VARIABLES
from shardpost.values.topic_names import TopicName
from tests.support import airflow_environment, how_far
from tests.support.formatted_data import format_once
from tests.support.installed import installed
from tests.support.object_store import ObjectStore, object_store
from tests.support.scheduling import Scheduling, give_way, ordered

pytest.register_assert_rewrite("tests.support.compacting")

FOLDER = Path(__file__).parent

TIERS = {
    "unit": "no JVM, no socket",
    "spark": "a local Spark session",
    "broker": "a real broker, a real mail sink",
    "dags": "Airflow's own code, nothing running",
    "e2e": "the whole stack",
    "cluster": "three brokers and more, each part in a network of its own",
    "containers": "docker-compose.yml, on an engine of its own: with --containers only",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how far the tests go, also of those that may go further still."""
    how_far.add_options(parser)
    parser.addoption(
        "--containers",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="run tests/containers; with a folder, keep its images there for the next run",
    )
    parser.addoption("--letters", type=int, default=600, help="letters of the long history")
    parser.addoption("--faults", type=int, help="random faults of the cluster")
    parser.addoption("--clock-library", type=Path, metavar="FILE", help="moves clocks")
    parser.addoption("--load", type=int, default=1, help="how many times as much work meanwhile")


def pytest_configure(config: pytest.Config) -> None:
    """Declare a marker for each tier, and how far the tests go."""
    how_far.configure(config)
    how_far.declare_markers(config)
    if hasattr(config, "workerinput"):
        give_way(config.workerinput)
    _keep_bytecode()
    # A shell that runs the tests in its background has them, and their commands, ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for tier, needs in TIERS.items():
        config.addinivalue_line("markers", f"{tier}: {needs}")


def _keep_bytecode() -> None:
    """Have hundreds of commands, and the next run, find what one has compiled (`__pycache__`)."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_unconfigure() -> None:
    """Take away the home of the tests' own Airflow."""
    airflow_environment.remove()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Give the processes of one run one seed."""
    how_far.give_seed(node.workerinput)


def pytest_report_header() -> str:
    """Print the seed."""
    return how_far.header()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test also on an object store where it is marked so."""
    how_far.generate(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its folder, so that `-m unit` chooses a tier; cheap tiers run first."""
    left_out = how_far.left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]
    order = list(TIERS)
    for item in items:
        item.add_marker(_tier(item))
    items.sort(key=lambda item: order.index(_tier(item)))
    if hasattr(config, "workerinput"):
        items[:] = ordered(items, [_tier(item) for item in items])


def pytest_collection_finish() -> None:
    """Have collections of garbage leave alone what is imported: a tenth of the time of unit tests.

    They are half a million objects.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Say which tests stay together when several processes share them."""
    NodeManager.EXIT_TIMEOUT = 60  # seconds; after Ctrl-C they stop what they have started
    return Scheduling(config, log)


def _tier(item: pytest.Item) -> str:
    return item.path.relative_to(FOLDER).parts[0]


def environ(**given: object) -> dict[str, str]:
    """Return variables for these settings and the defaults of all others, whatever `.env` has."""
    own = {f"SHARDPOST_{name.upper()}": str(value) for name, value in given.items()}
    return dict.fromkeys(VARIABLES, "") | own


@pytest.fixture
def stack_environ(tmp_path: Path) -> dict[str, str]:
    """Give variables of a stack of its own: a home of this test, free ports."""
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    return environ(home=tmp_path / "home", **free)


@pytest.fixture
def clock_library(pytestconfig: pytest.Config) -> Path:
    """Give the library for LD_PRELOAD that moves the clock of a process by CLOCK_SHIFT seconds.

    Such are not among the packages: without `--clock-library FILE` a test of it is skipped.
    """
    named: Path | None = pytestconfig.option.clock_library
    if named is None:
        pytest.skip("moves clocks: --clock-library FILE")
    return named.resolve(strict=True)


@pytest.fixture(scope="session", autouse=True)
def _formatted_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        format_once(patch, tmp_path_factory.getbasetemp() / "formatted-data")
        yield


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Give settings of a real broker that runs until the tests end."""
    home = tmp_path_factory.mktemp("kafka")
    settings = load(environ(home=home, kafka_port=daemons.choose_port()))
    broker.start(settings)
    yield settings
    broker.stop(settings)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Give an object store that runs until the tests end."""
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture(autouse=True)
def tables_at(request: pytest.FixtureRequest) -> Iterator[ObjectStore | None]:
    """Have the tables of all settings that a test makes in its home, or on a store: it is given."""
    if getattr(request, "param", None) != how_far.STORE:
        yield None
        return
    found: ObjectStore = request.getfixturevalue("store")
    with found.has_all_tables():
        yield found


@pytest.fixture
def settings(kafka: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Give settings with a home and topic names of this test's own, on the one real broker.

    No topic exists yet: `shardpost.topics.creation.apply(settings)` makes them, with 4 partitions.
    They go with the test: who asks for topics is told of all that there are.
    """
    own = settings_of_its_own(kafka, tmp_path)
    yield own
    _delete_topics(own, own.topic("positions").removeprefix("positions-"))


def _delete_topics(settings: Settings, unique: str) -> None:
    client = installed(settings).kafka.admin()
    names = [name for name in client.list_topics(timeout=20).topics if unique in name]
    for done in client.delete_topics(names).values() if names else ():
        done.result(30)


def settings_of_its_own(kafka: Settings, home: Path) -> Settings:
    """Return settings with that home and topic names that nobody else has, on that broker."""
    unique = uuid.uuid4().hex[:8]
    topics = {f"topic_{name.replace('-', '_')}": f"{name}-{unique}" for name in get_args(TopicName)}
    return load(
        environ(
            home=home,
            bootstrap_servers=kafka.bootstrap,
            partitions=4,
            spark_master="local[2]",
            driver_memory="1g",
            smtp_port=daemons.choose_port(),
            **topics,
        )
    )
