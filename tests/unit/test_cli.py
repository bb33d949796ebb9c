import errno
import os
from pathlib import Path

import click
import pytest

from shardpost import cli


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
