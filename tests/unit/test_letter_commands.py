"""What `shardpost letters` takes and prints, without a broker."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost.commands.letters import list_text
from shardpost.commands.parked_letters import new_value_of
from shardpost.dead_letters.listed_letters import LetterGroup
from shardpost.errors import UsageError
from tests.support.command_line import CommandLineHere

AT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ('{"Amount": 1.5}', b'{"Amount": 1.5}'),
        (" [1]", b" [1]"),
        ('"a"', b'"a"'),
        ("here", b"not JSON\n"),
        ("./{here", b"{"),
    ],
)
def test_a_new_value_is_json_or_the_content_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, value: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").write_bytes(b"not JSON\n")
    Path("{here").write_bytes(b"{")
    assert new_value_of(given) == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"Amount": 1,5}', "expected JSON, or the name of a file: Expecting property name"),
        ("[" * 100_000, "expected JSON"),
        ("gone", "--value gone: cannot be read: No such file or directory: expected a file, - for"),
    ],
)
def test_what_is_neither_json_nor_a_file_is_no_new_value(given: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        new_value_of(given)
    assert said in str(refused.value)


@pytest.mark.parametrize("command", ["redrive", "discard"])
def test_a_plan_takes_no_rate(command: str) -> None:
    refused = CommandLineHere({}).refused("letters", command, "--rate", "2", code=2)
    assert "--rate needs --apply" in refused


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("Late: order 7 came\x1b[2J\nTraceback (most recent …", "Late: order 7 came [2J"),
        ("\n \nLate: it came", "Late: it came"),
        (f"Late: {'x' * 200}\nmore", f"Late: {'x' * 93}…"),
        (None, ""),
    ],
)
def test_the_list_has_the_first_line_of_an_error(error: str | None, line: str) -> None:
    group = LetterGroup("parked", "a", "Late-f00", 2, AT, AT, "a-0-1", error)
    heading, row = list_text([group], 0).splitlines()
    assert heading.split()[-3:] == ["its", "error", "begins"]
    before = "parked  a       Late-f00  2        2026-11-21 00:00:00 UTC  a-0-1"
    assert row == f"{before}    {line}".rstrip()
