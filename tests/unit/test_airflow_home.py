"""The embedded Airflow uses nothing outside of its home, and makes its database where none is."""

from importlib import metadata
from pathlib import Path

import pytest

from shardpost.checkout import CHECKOUT
from shardpost.embedded import airflow
from shardpost.embedded.airflow_home import process_environment
from shardpost.settings import Settings

OF_THE_HOME = {
    "AIRFLOW_HOME": "{}",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:///{}/airflow.db",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": "{}/logs",
    "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": "{}/logs/dag_processor",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": "{}/passwords.json",
}


def test_every_path_of_airflow_is_set_in_its_home_or_in_the_checkout(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", "/of/another/airflow")
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    found = process_environment(settings)
    assert found["AIRFLOW__METRICS__OTEL_ON"] == "True"
    home = settings.home / "airflow"
    assert {name: found[name] for name in OF_THE_HOME} == {
        name: text.format(home) for name, text in OF_THE_HOME.items()
    }
    assert found["AIRFLOW__CORE__DAGS_FOLDER"] == str(CHECKOUT / "dags")
    assert found["AIRFLOW__CORE__PLUGINS_FOLDER"] == str(CHECKOUT / "plugins")


@pytest.mark.parametrize("left", [None, b""], ids=["no file", "an empty file"])
def test_a_database_that_is_gone_is_made_again_whatever_was_noted(
    left: bytes | None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _noted_as_migrated(settings, monkeypatch)
    if left is not None:
        (home / "airflow.db").write_bytes(left)
    airflow.prepare(settings)
    assert (home / "airflow.db").read_text() == "db migrate\n"


def test_a_database_of_this_version_is_left_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _noted_as_migrated(settings, monkeypatch)
    (home / "airflow.db").write_text("of before")
    airflow.prepare(settings)
    assert (home / "airflow.db").read_text() == "of before"


def _noted_as_migrated(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return Airflow's home; its command line is one that writes what it was asked for."""
    programs = settings.home / "bin"
    programs.mkdir()
    (programs / "airflow").write_text('#!/bin/sh\necho "$@" > "$AIRFLOW_HOME/airflow.db"\n')
    (programs / "airflow").chmod(0o755)
    monkeypatch.setattr(airflow, "BIN", programs)
    home = settings.home / "airflow"
    home.mkdir()
    (home / "migrated-to").write_text(metadata.version("apache-airflow"))
    return home
