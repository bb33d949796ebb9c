import errno
import os
from pathlib import Path

import click
import pytest

from shardpost import cli


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no room for what it prints to: No sp"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y"), "no room for /x/y: No space"),
        (OSError(errno.EIO, "broken"), "unexpected OSError: [Errno 5] broken (a fault of ours"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_what_ends_a_command_is_said_in_one_line(
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
