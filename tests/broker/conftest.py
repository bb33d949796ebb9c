"""The command line, a stack that is up, a played Airflow, and topics for run requests."""

from collections.abc import Iterator

import pytest

from shardpost.embedded import daemons, stack
from shardpost.settings import Settings
from shardpost.topics import topics_file
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import DECISIONS, RUN_COMMANDS, RUN_REQUESTS
from shardpost.weekly_email.model import retry
from tests.conftest import environ
from tests.support.airflow_server import AirflowServer, airflow_server
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed


@pytest.fixture
def shardpost(ready: Settings) -> CommandLineHere:
    """Give the command line with the settings that the test's file has made `ready`."""
    return CommandLineHere(ready.environ())


@pytest.fixture(autouse=True)
def retries_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have mails and connections tried again soon by the process of the tests."""
    monkeypatch.setattr(retry, "FIRST_DELAY", 0.05)
    monkeypatch.setattr(retry, "DELAY_FACTOR", 1.5)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Give the command line of a stack that is up, and that each test leaves up."""
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    home = tmp_path_factory.mktemp("lasting") / "home"
    command = CommandLine(environ(home=home, partitions=2, **free))
    said = command("up", "--no-airflow")
    assert f"127.0.0.1:{command.settings.kafka_port}" in said
    yield command
    stack.down(command.settings, say=lambda _: None)


@pytest.fixture
def airflow() -> Iterator[AirflowServer]:
    with airflow_server(weekly_email=False, compact_positions=False) as played:
        yield played


@pytest.fixture
def askable(
    settings: Settings, airflow: AirflowServer, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setattr(topics_file, "DECLARED", (RUN_REQUESTS, RUN_COMMANDS, DECISIONS))
    own = settings.model_copy(update={"partitions": 1, **airflow.environ()})
    apply_topics(installed(own))
    return own
