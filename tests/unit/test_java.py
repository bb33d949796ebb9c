"""Which Java is found."""

from pathlib import Path

import pytest

from shardpost.embedded.broker import find_java, java_major
from shardpost.errors import ShardpostError


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Da=b\nopenjdk version "17.0.1"', 17),
        ("The operation couldn't be completed", None),
    ],
)
def test_the_major_version_is_read(said: str, version: int | None) -> None:
    assert java_major(said) == version


def java_that_says(folder: Path, version: str) -> str:
    (folder / "bin").mkdir()
    file = folder / "bin" / "java"
    file.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    file.chmod(0o755)
    return str(file)


def test_the_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = java_that_says(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == file


@pytest.mark.parametrize("version", ["11.0.2", "25.0.1"])
def test_a_java_that_spark_does_not_run_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java_that_says(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        ShardpostError, match=r"is Java \d+, expected Java 17 to 21: install Java 17 or 21"
    ):
        find_java()


def test_no_java_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShardpostError, match="no java in PATH: install Java 17"):
        find_java()
