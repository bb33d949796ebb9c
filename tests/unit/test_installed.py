"""What a package that pip installed is given: jars, by their SHA-256."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from shardpost.commands import stack
from shardpost.spark import jars
from shardpost.spark.jars import jars_of, packages_zip
from tests.support.command_line import CommandLineHere


@pytest.fixture
def shardpost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLineHere:
    """Give the command, in an environment without jars, whose only jar is one of `spark`."""
    ivy = tmp_path / "ivy"
    ivy.mkdir()
    (ivy / "spark.xml").touch()
    (ivy / "settings.xml").touch()
    digest = hashlib.sha256(b"good").hexdigest()
    (ivy / "jars.sha256").write_text(f"{digest}  spark/one-1.0.jar\n{digest}  broker/two.jar\n")
    monkeypatch.setattr(stack, "IVY", ivy)
    monkeypatch.setattr(jars, "JARS", tmp_path / "share" / "jars")
    return CommandLineHere({"SHARDPOST_HOME": str(tmp_path / "home")})


def fetched(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(purpose: str, folder: Path) -> None:
        (folder / purpose).mkdir()
        (folder / purpose / "one-1.0.jar").write_bytes(text)

    monkeypatch.setattr(stack, "_retrieve", retrieve)


def test_jars_are_fetched_once_and_are_those_that_are_listed(
    shardpost: CommandLineHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(b"good", monkeypatch)
    folder = tmp_path / "share" / "jars" / "spark"
    assert shardpost.answer("jars", "fetch") == (0, f"{folder}\n", "")
    assert jars_of("spark") == [folder / "one-1.0.jar"]
    assert [file.name for file in folder.parent.iterdir()] == ["spark"]
    fetched(b"not asked for", monkeypatch)
    assert shardpost.answer("jars", "fetch", "spark") == (0, f"{folder}\n", "")


def test_jars_that_are_not_those_listed_are_refused_by_name_and_not_kept(
    shardpost: CommandLineHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(b"bad", monkeypatch)
    code, out, err = shardpost.answer("jars", "fetch")
    assert (code, out) == (1, "")
    assert err.endswith("expected the checksums of ivy/jars.sha256, found others: one-1.0.jar\n")
    assert list((tmp_path / "share" / "jars").iterdir()) == []
    code, _, err = shardpost.answer("jars", "fetch", "nothing")
    assert code == 2
    assert "expected spark, found nothing" in err


def test_executors_get_no_more_of_an_installed_package_than_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "shardpost"
    for name in ("one.py", "shipped/dags/two.py", "__pycache__/one.pyc"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    monkeypatch.setattr(jars, "PACKAGE", package)
    assert zipfile.ZipFile(packages_zip(tmp_path)).namelist() == ["shardpost/one.py"]
