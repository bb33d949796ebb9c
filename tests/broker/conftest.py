"""The command line, an Airflow that the test plays, and topics for run requests."""

from collections.abc import Iterator

import pytest

from shardpost.settings import Settings
from shardpost.topics import topics_file
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import DECISIONS, RUN_COMMANDS, RUN_REQUESTS
from tests.support.airflow_server import AirflowServer, airflow_server
from tests.support.command_line import CommandLineHere


@pytest.fixture
def shardpost(ready: Settings) -> CommandLineHere:
    """Give the command line with the settings that the test's file has made `ready`."""
    return CommandLineHere(ready.environ())


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
    apply_topics(own)
    return own
