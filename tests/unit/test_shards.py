"""Shards as people write them."""

import pytest

from shardpost.errors import UsageError
from shardpost.weekly_email.model import email_request


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("2", [2]),
        ("0,2,5-7", [0, 2, 5, 6, 7]),
        ("7, 1-2 ,2", [1, 2, 7]),
        (None, list(range(8))),
        ("", list(range(8))),
    ],
)
def test_a_list_names_shards(text: str | None, found: list[int]) -> None:
    assert email_request.parse_shards(text, 8) == found


@pytest.mark.parametrize("text", ["8", "3-1", "a", "1-", "-1", "1,,2", "1;2", "0-8", "²"])
def test_a_list_that_names_others_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="shards"):
        email_request.parse_shards(text, 8)


def test_groups_have_names_that_read_back() -> None:
    groups = email_request.shard_groups(email_request.parse_shards(None, 10), 4)
    assert [email_request.shard_label(group) for group in groups] == [
        "shards 0-3",
        "shards 4-7",
        "shards 8-9",
    ]
    assert email_request.shard_label([4]) == "shard 4"
    assert email_request.parse_shards(email_request.shard_text([0, 2, 5, 6, 7]), 8) == [
        0,
        2,
        5,
        6,
        7,
    ]
