"""One cluster for all tests of this tier: `make test` takes at most one, `make test-all` some."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.settings import Settings
from tests.conftest import settings_of_its_own
from tests.support.cluster import Cluster, running_cluster
from tests.support.how_far import by_seed, is_every
from tests.support.installation import Installation, installation

LONG = ("test_airflow_faults", "test_bad_network", "test_clocks", "test_random_faults")
SOME = 2  # tests that a run of every case takes, unless it is for the faults (`--faults`)
SECONDS = 900  # of a test; the first one starts the parts that it asks for


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the tests of this folder their time, and have `make test` take at most one."""
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    if config.option.faults is None:
        short = [item for item in ours if item.path.stem not in LONG]
        if is_every():
            short = by_seed("faults").sample(short, min(SOME, len(short)))
        left = [item for item in ours if item not in short]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
        ours = short
    for item in ours:
        item.add_marker(pytest.mark.timeout(SECONDS))
        item.add_marker(pytest.mark.one_of("whole systems"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give the cluster: what a test kills, pauses or cuts off it leaves running."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def settings(cluster: Cluster, tmp_path: Path) -> Settings:
    """Give settings with a home and topic names of this test's own, on the three brokers."""
    own = settings_of_its_own(cluster.settings, tmp_path)
    return own.model_copy(update={"replication_factor": 3, "kafka_timeout": 60})


@pytest.fixture
def at_work(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> Iterator[Installation]:
    """Give an installation on the whole cluster; `--load` says with how much work."""
    monkeypatch.setenv("SSL_CERT_FILE", str(cluster.secured.authority.certificate))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", cluster.java_options)
    with installation(cluster, tmp_path / "home", load=pytestconfig.option.load) as made:
        yield made
