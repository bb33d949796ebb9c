"""Which job leaves the archive of classes, and which ones read it."""

from pathlib import Path

import pytest

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.spark import class_archive
from shardpost.spark.job_spec import JobSpec
from shardpost.weekly_email.email_job import WEEKLY_EMAIL

COMPACTION, SWEEP, EMAIL = COMPACT_POSITIONS, SWEEP_DEAD_LETTERS, WEEKLY_EMAIL


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty folder of archives in which any file is large enough."""
    monkeypatch.setattr(class_archive, "FOLDER", tmp_path)
    monkeypatch.setattr(class_archive, "MIN_BYTES", 4)
    return tmp_path


def run(job: JobSpec, leaves: bytes = b"classes") -> str:
    """Run a job whose JVM leaves those bytes if asked for an archive; return what it was asked."""
    with class_archive.read_or_create(job) as archive:
        if archive.dump_to:
            archive.dump_to.write_bytes(leaves)
        archive.keep()
        return " ".join(archive.jvm_options).partition("=")[0]


def read_by(job: JobSpec) -> Path:
    """Return the archive that a job's JVM would read."""
    with class_archive.read_or_create(job) as archive:
        return archive.path


def test_the_first_job_makes_one_and_the_next_reads_it() -> None:
    assert class_archive.read_options() == ()
    assert run(SWEEP) == "-XX:ArchiveClassesAtExit"
    assert run(SWEEP) == run(EMAIL) == "-XX:SharedArchiveFile"
    assert class_archive.read_options() == (f"-XX:SharedArchiveFile={read_by(SWEEP)}",)


def test_a_compaction_makes_a_better_one_that_all_read() -> None:
    run(SWEEP)
    small = read_by(SWEEP)
    assert run(COMPACTION) == "-XX:ArchiveClassesAtExit"
    assert run(COMPACTION) == run(SWEEP) == "-XX:SharedArchiveFile"
    assert read_by(SWEEP) == read_by(COMPACTION) != small


def test_after_a_compaction_no_other_job_makes_one() -> None:
    run(COMPACTION)
    assert run(SWEEP) == "-XX:SharedArchiveFile"


def test_what_a_jvm_without_spark_leaves_is_not_kept(folder: Path) -> None:
    run(COMPACTION, leaves=b"jvm")
    assert list(folder.iterdir()) == []
    assert class_archive.read_options() == ()


def test_a_folder_that_is_not_ours_to_write_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    run(COMPACTION)
    assert list(folder.iterdir()) == []


def test_with_a_folder_of_settings_in_the_class_path_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert run(COMPACTION) == ""
    monkeypatch.delenv("SPARK_CONF_DIR")
    run(COMPACTION)
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert run(SWEEP) == ""
    assert class_archive.read_options() == ()
