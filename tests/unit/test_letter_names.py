"""The names of letters, and that nothing in a text of others steers a terminal."""

import pwd
from hashlib import sha256

import pytest
from hypothesis import example, given, strategies

from shardpost.commands.console import person
from shardpost.dead_letters.model.letter_format import keys_of, name_of
from shardpost.errors import harmless, one_line


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (b"positions-0-17", "positions-0-17"),
        ("ümläut 1/..".encode(), "ümläut 1/.."),
        (b"\xff", "base64 /w=="),
        (b"a\nb", "base64 YQpi"),
        (b"\x1b[31m", "base64 G1szMW0="),
        (b"k" * 1000, "k" * 1000),
        (b"k" * 1001, "sha256 " + sha256(b"k" * 1001).hexdigest()),
        (b"", "sha256 " + sha256(b"").hexdigest()),
        (None, "sha256 " + sha256(b"").hexdigest()),
    ],
)
def test_a_key_is_called_by_what_a_person_can_read_and_type(key: bytes | None, name: str) -> None:
    assert name_of(key) == name


@given(strategies.binary(max_size=1100))
@example(b"base64 ")
@example("base64 ü".encode())
def test_a_name_names_itself_and_is_found_by_its_key(key: bytes) -> None:
    name = name_of(key)
    assert name_of(name.encode()) == name
    assert harmless(name) == name
    if 0 < len(key) <= 1000:
        assert key in keys_of(name)


def test_what_could_steer_a_terminal_is_replaced_and_lines_stay() -> None:
    text = "a\x1b[31m\x9b\x07\r\u202eb\n\tc ü\u00a0"
    assert harmless(text) == "a\ufffd[31m\ufffd\ufffd\ufffd\ufffdb\n\tc ü\u00a0"
    assert one_line("a\nb") == "a\ufffdb"


def test_who_has_no_name_is_recorded_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert person().startswith("uid ")
