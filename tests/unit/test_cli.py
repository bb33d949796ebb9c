import errno
import os
import tempfile
from pathlib import Path

import click
import pytest

from shardpost import cli
from shardpost.settings import Settings


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "cannot write standard output: No sp"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y"), "cannot write /x/y: No space"),
        (OSError(errno.EIO, "broken"), "internal error: OSError: [Errno 5] broken; traceback in /"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_error_of_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    failure: BaseException,
    expected: str,
) -> None:
    def fail() -> None:
        raise failure

    monkeypatch.setenv("SHARDPOST_HOME", str(tmp_path))
    monkeypatch.setattr(cli, "root", click.Command("fail", callback=fail))
    assert cli.run([]) == 1
    out, said = capsys.readouterr()
    assert out == ""
    [line] = said.split("\n")[-2:-1]  # click begins a new line after ^C
    assert line.startswith(f"shardpost: {expected}")


def test_an_internal_error_is_one_line_where_the_settings_are_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def no_settings() -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "broken")

    def fail() -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr("shardpost.settings.load", no_settings)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "root", click.Command("fail", callback=fail))
    assert cli.run([]) == 1
    [file] = tmp_path.iterdir()
    assert "RuntimeError: unexpected" in file.read_text()
    said = capsys.readouterr().err
    assert said == f"shardpost: internal error: RuntimeError: unexpected; traceback in {file}\n"


def test_an_internal_error_is_one_line_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail() -> None:
        raise RuntimeError("unexpected")

    (tmp_path / "logs").touch()
    monkeypatch.setattr("shardpost.settings.load", lambda: Settings(home=tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(cli, "root", click.Command("fail", callback=fail))
    assert cli.run([]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "internal error: RuntimeError: unexpected; its traceback cannot be written"
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("compcat", "No such command 'compcat'. Did you mean compact?\n"),
        ("xyz", "No such command 'xyz'.\n"),
    ],
)
def test_the_command_that_may_have_been_meant_is_named(
    capsys: pytest.CaptureFixture[str], word: str, said: str
) -> None:
    assert cli.run([word]) == 2
    assert capsys.readouterr().err.endswith(said)
