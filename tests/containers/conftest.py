"""The system of docker-compose.yml, up on an engine of its own; `make test-cluster` alone asks."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.checkout import CHECKOUT
from tests.support import docker_engine, stand_ins
from tests.support.docker_engine import Compose, Engine, call

SECONDS = 1500  # of the whole: images, start, story
FILES = ("docker-compose.yml", "Dockerfile", "Makefile", "scripts/cluster-env")
# Mails slowly enough for something to happen meanwhile.
SETTINGS = "SHARDPOST_MAIL_RATE=4\n"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the tests of this folder their time, or none."""
    asked = config.getoption("--containers") is not None
    skip = pytest.mark.skip(reason="brings up containers for minutes: make test-cluster")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(SECONDS) if asked else skip)


@pytest.fixture(scope="session")
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Give an engine with all images; a folder given by `--containers=FOLDER` is kept with them."""
    docker_engine.require()
    kept = request.config.getoption("--containers")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("docker")
    engine = Engine(folder.resolve(), f"shardpost-{os.getpid()}")
    with engine.alone():
        try:
            with engine.with_registries():
                stand_ins.build_all(engine)
            with engine.apart():
                yield engine
        finally:
            if not kept:
                engine.remove()


@pytest.fixture(scope="session")
def system(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """Give the whole system, up and healthy, in a folder with what a checkout has for it."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "scripts").mkdir()
    for name in FILES:
        shutil.copy(CHECKOUT / name, folder / name)
    (folder / ".env").write_text(SETTINGS)
    call("scripts/cluster-env", cwd=folder)
    compose = Compose(engine, folder)
    try:
        compose("up", "-d", "--wait")
        yield compose
    finally:
        compose("down", "--volumes", "--timeout", "20")
