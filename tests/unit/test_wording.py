"""How numbers of things are written: everywhere by one function, which knows the singular."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.checkout import CHECKOUT
from shardpost.wording import counted

PACKAGE = CHECKOUT / "shardpost"
THINGS = "records|clients|positions|holders|weeks|letters|partitions|rows|files|snapshots|mails"
THINGS += "|commands|keys|lists|offsets|shards|dead letters|connections|replicas"
KINDS = "open|due|dead|frozen|resolved|initial|more|unreferenced|refused|rejected|parked|waiting"
OF_THINGS = re.compile(rf" (?:(?:{KINDS}) )*(?:{THINGS})\b")
# A part `of 7 records`, or a bound `at most 7`, is of several.
SEVERAL = re.compile(r"\bof (?:the )?$|(?:\bat (?:most|least)|\bmore than) $")


def uncounted(path: Path) -> Iterator[str]:
    """Yield where a number is followed by a plural that does not depend on it."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        texts = [str(part.value) if isinstance(part, ast.Constant) else "" for part in parts]
        for at, part in enumerate(parts[:-1]):
            is_several = at and SEVERAL.search(texts[at - 1])
            is_number = isinstance(part, ast.FormattedValue) and OF_THINGS.match(texts[at + 1])
            if is_number and not is_several:
                yield f"{path.relative_to(CHECKOUT)}:{part.lineno}: …{texts[at + 1]}"


def test_no_text_says_1_records() -> None:
    found = [line for path in sorted(PACKAGE.rglob("*.py")) for line in uncounted(path)]
    assert found == [], "write it by shardpost.wording.counted"


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (2, ("dead letter",), "2 dead letters"),
        (1, ("log entry", "log entries"), "1 log entry"),
        (12_000, ("list differs", "lists differ"), "12000 lists differ"),
    ],
)
def test_a_number_of_things_has_the_singular_for_one(
    count: int, words: tuple[str, ...], text: str
) -> None:
    assert counted(count, *words) == text
