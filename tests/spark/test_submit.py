"""What jobs are submitted with: the class archive of set-up."""

from pathlib import Path

import pytest

from shardpost.embedded import broker
from shardpost.embedded import set_up as at_setup
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.spark import jars
from tests.support.how_far import is_every


@pytest.fixture
def made_before(archive: tuple[str, ...]) -> list[Path]:
    return [] if is_every() else [Path(option.partition("=")[2]) for option in archive]


@pytest.fixture
def folder(made_before: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    del made_before  # in another folder
    monkeypatch.setattr(jars, "ARCHIVE_FOLDER", tmp_path)
    return tmp_path


def test_a_set_up_leaves_the_archive_of_a_compaction_and_a_second_one_does_nothing(
    made_before: list[Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made in made_before:  # by the set-up in front of these tests; with --all it is done again
        (folder / made.name).symlink_to(made)
    at_setup.create_class_archive()
    [archive] = folder.iterdir()
    assert archive.name.endswith(".full.jsa")
    assert archive.stat().st_size >= jars.MIN_ARCHIVE_BYTES

    def refuse(_settings: Settings) -> None:
        raise AssertionError("a broker was started")

    monkeypatch.setattr(broker, "start", refuse)
    at_setup.create_class_archive()
    assert [*folder.iterdir()] == [archive]


def test_where_no_broker_starts_it_says_so_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_settings: Settings) -> None:
        raise ShardpostError("Kafka did not start")

    monkeypatch.setattr(broker, "start", fail)
    with pytest.raises(ShardpostError, match="Kafka did not start"):
        at_setup.create_class_archive()
    assert [*folder.iterdir()] == []
