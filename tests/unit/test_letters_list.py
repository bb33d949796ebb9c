"""What `shardpost letters list` says where it lists nothing."""

from datetime import UTC, datetime

import pytest

from shardpost import tables
from shardpost.dead_letters import letter_topics
from shardpost.dead_letters.model.letter_format import LetterState
from shardpost.dead_letters.model.letter_history import Step
from shardpost.topics import stores
from tests.support.command_line import CommandLine

AT = datetime(2026, 11, 23, tzinfo=UTC)
LETTER = Step("a-0-1", LetterState.PARKED, 1, AT, "parking-lot", 0, 0, "a", fingerprint="f00")


@pytest.mark.parametrize(
    ("letters", "arguments", "said"),
    [
        ([], ("--error", "nope"), "no letters\n"),
        ([LETTER], ("--error", "nope"), "no letter has the error nope; "),
        ([LETTER], ("--error", "f00", "--state", "waiting"), "none of 1 letters matches; "),
        ([LETTER], ("--origin", "b"), "none of 1 letters matches; "),
        ([LETTER], ("--error", "f00"), "state   origin  error"),
    ],
)
def test_that_nothing_is_listed_is_said_with_its_reason(
    shardpost: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    letters: list[Step],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr(tables, "letters", lambda _, closed_since: letters)
    monkeypatch.setattr(stores, "inspect_stores", lambda *_: None)
    monkeypatch.setattr(letter_topics, "not_visible", lambda _: [])
    assert shardpost("letters", "list", *arguments).startswith(said)
