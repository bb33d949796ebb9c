"""How many suppressed clients of a week need a person's attention."""

import pytest

from shardpost.settings import load
from shardpost.weekly_email.model.limits import SuppressedLimit
from shardpost.weekly_email.model.week_report import COLUMNS


def shard(**counts: int) -> dict[str, int]:
    return dict.fromkeys(COLUMNS, 0) | counts


@pytest.mark.parametrize(
    ("suppressed", "sent", "is_too_many"),
    [(5, 0, False), (6, 0, True), (6, 6, False), (7, 6, True), (5000, 5000, False)],
)
def test_too_many_is_more_than_a_number_and_more_than_a_share(
    suppressed: int, sent: int, is_too_many: bool
) -> None:
    limit = SuppressedLimit(allowed=5, share=0.5)
    shards = [shard(shard=7, suppressed=suppressed), shard(shard=9, sent=sent)]
    assert (limit.why_exceeded("2026-W47", shards) is not None) is is_too_many


def test_a_producer_that_unsubscribes_everybody_is_told_with_the_way_back() -> None:
    limit = SuppressedLimit.of(load({}))
    reason = limit.why_exceeded("2026-W47", [shard(suppressed=999, failed=1)])
    assert reason is not None
    assert "2026-W47: 999 of 1000 clients are not subscribed" in reason
    assert "`shardpost email --week 2026-W47 --again SUPPRESSED`" in reason


def test_the_limit_is_that_of_the_settings() -> None:
    given = {"SHARDPOST_MAIL_SUPPRESSED_ALLOWED": "7", "SHARDPOST_MAIL_SUPPRESSED_SHARE": "0.9"}
    assert SuppressedLimit.of(load(given)) == SuppressedLimit(7, 0.9)
