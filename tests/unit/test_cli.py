"""What holds for every command: its errors are one line, and wrong settings stop it."""

import errno
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from shardpost import cli
from shardpost.settings import Settings, loading
from tests.support.command_line import CommandLineHere


@pytest.fixture
def fail(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], str]:
    """Return what has a command fail by an error, and returns its one line."""

    def fail(error: BaseException) -> str:
        def failing() -> None:
            raise error

        monkeypatch.setattr(cli, "root", click.Command("fail", callback=failing))
        code, out, err = CommandLineHere(settings.environ()).answer()
        assert (code, out) == (1, "")
        [line] = err.strip("\n").split("\n")  # click begins a new line after ^C
        return line

    return fail


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "cannot write standard output: No sp"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y"), "cannot write /x/y: No space"),
        (
            OSError(errno.EROFS, os.strerror(errno.EROFS), "/x"),
            "cannot write /x: Read-only file sys",
        ),
        (
            OSError(errno.EACCES, os.strerror(errno.EACCES), "/x"),
            "cannot write /x: Permission denied; give",
        ),
        (OSError(errno.EIO, "broken"), "internal error: OSError: [Errno 5] broken; traceback in /"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_error_of_a_command_is_one_line(
    fail: Callable[[BaseException], str], failure: BaseException, expected: str
) -> None:
    assert fail(failure).startswith(f"shardpost: {expected}")


def test_an_internal_error_is_one_line_where_the_settings_are_wrong(
    fail: Callable[[BaseException], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_settings() -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "broken")

    monkeypatch.setattr("shardpost.settings.load", no_settings)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = fail(RuntimeError("unexpected"))
    [file] = tmp_path.iterdir()
    assert "RuntimeError: unexpected" in file.read_text()
    assert said == f"shardpost: internal error: RuntimeError: unexpected; traceback in {file}"


def test_an_internal_error_is_one_line_where_no_file_can_be_written(
    fail: Callable[[BaseException], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "logs").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    said = "internal error: RuntimeError: unexpected; the traceback cannot be written"
    assert fail(RuntimeError("unexpected")).endswith(said)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("compcat", "No such command 'compcat'. Did you mean 'compact'?\n"),
        ("mail", "No such command 'mail'. (Did you mean one of: 'email', 'emails'?)\n"),
        ("xyz", "No such command 'xyz'.\n"),
        ("letters lst", "No such command 'lst'. Did you mean 'list'?\n"),
        ("email", "Missing option '--week'. ISO week, such as 2026-W47. Required.\n"),
        ("emails", "Missing option '--week'. ISO week, such as 2026-W47. Required.\n"),
        ("runs request k --params {}", "No such option '--params'. Did you mean --conf?\n"),
        ("runs request k --daag x", "No such option '--daag'. Did you mean '--dag'?\n"),
        ("runs request k --nonsense", "No such option '--nonsense'.\n"),
    ],
)
def test_the_command_or_option_that_may_have_been_meant_is_named(
    settings: Settings, word: str, said: str
) -> None:
    code, _, err = CommandLineHere(settings.environ()).answer(*word.split())
    assert (code, err.endswith(said)) == (2, True)


WITH_ARGUMENTS = {
    "explain": [["client1"]],
    "topics": [["apply"], ["apply", "--dry-run"], ["audit"]],
    "import": [["list.csv"]],
    "inputs": [["check"], ["suggest", "positions"]],
    "sql": [["SELECT 1"]],
    "tables": [["list"], ["maintain"]],
    "email": [["--week", "2026-W40"], ["--week", "2026-W40", "--dry-run"]],
    "emails": [["--week", "2026-W40"]],
    "erase": [["client1", "--why", "x"]],
    "letters": [["list"], ["show", "x"], ["sweep"], ["redrive"], ["discard"]],
    "runs": [["list"], ["dispatch"], ["release", "key", "--why", "x"], ["request", "x", "--dag=y"]],
    "rebuild": [["start"], ["diff"], ["swap"], ["rollback"], ["drop"], ["list"]],
    "alerts": [["test"]],
    "dags": [["path"]],
    "jars": [["fetch"]],
    "airflow": [["dags", "list"]],
}
# `doctor` names them too, among all else that is wrong (test_doctor.py).
STOPPED = [name for name in cli.COMMANDS if name != "doctor"]
CALLS = [[name, *more] for name in STOPPED for more in WITH_ARGUMENTS.get(name, [[]])]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_wrong_settings_stop_every_command_by_name(
    call: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "_of_this_process", loading._of_this_process.__wrapped__)
    monkeypatch.setenv("SHARDPOST_KAFKA__FOO", "1")
    monkeypatch.setenv("SHARDPOST_UNSUBSCRIBE_URL", "https://bank.com/{clinet}")
    assert cli.run(call) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert "SHARDPOST_KAFKA__FOO" in said
    assert "SHARDPOST_UNSUBSCRIBE_URL" in said


def test_help_is_printed_whatever_the_settings_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDPOST_KAFKA__FOO", "1")
    assert cli.run(["compact", "--help"]) == 0
    assert "--reconcile" in capsys.readouterr().out


def test_lists_of_commands_have_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    ctx = click.Context(cli.root)
    commands = {name: cli.root.get_command(ctx, name) for name in cli.COMMANDS}
    groups = [[name] for name, found in commands.items() if isinstance(found, click.Group)]
    for group in ([], *groups):
        assert cli.run([*group, "--help"]) == 0
        listed = capsys.readouterr().out.partition("\nCommands:\n")[2].splitlines()
        assert listed
        assert [line for line in listed if line.endswith("...") or len(line) > 80] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("emails", "--week", "2026-W47", "--client", ""),
        ("email", "--week", "2026-W47", "--shards="),
        ("lag", "--group", "", "--json"),
        ("letters", "discard", "--error", "", "--apply", "--why", "x"),
        ("rebuild", "start", "--tables", ""),
        ("holders", ""),
        ("explain", "client1", ""),
    ],
)
def test_an_option_or_argument_that_is_given_and_empty_is_bad_usage(
    arguments: tuple[str, ...],
) -> None:
    said = CommandLineHere({}).refused(*arguments, code=2)
    assert re.search(r"(--\w+|[A-Z]{2,}): expected a value, found an empty string", said)


def test_an_option_may_have_a_value_that_ends_with_an_equals_sign() -> None:
    said = CommandLineHere({}).refused("emails", "--week=W=", code=2)
    assert "found an empty string" not in said
