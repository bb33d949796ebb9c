"""How many failed or suppressed clients of a week need a person's attention."""

import pytest

from shardpost.settings import load
from shardpost.weekly_email.model.limits import FailedLimit, SuppressedLimit
from shardpost.weekly_email.model.week_report import COLUMNS


def shard(**counts: int) -> dict[str, int]:
    return dict.fromkeys(COLUMNS, 0) | counts


@pytest.mark.parametrize(
    ("failed", "sent", "is_too_many"),
    [(5, 1, False), (6, 1, True), (6, 114, False), (7, 113, True), (50, 950, False)],
)
def test_too_many_failed_is_more_than_a_number_and_more_than_a_share(
    failed: int, sent: int, is_too_many: bool
) -> None:
    limit = FailedLimit(allowed=5, share=0.05)
    shards = [shard(shard=7, failed=failed), shard(shard=9, sent=sent)]
    assert (limit.why_exceeded("2026-W47", shards) is not None) is is_too_many


@pytest.mark.parametrize("others", [{}, {"suppressed": 9}, {"unknown": 9}, {"open": 9}])
@pytest.mark.parametrize("failed", [1, 4])
def test_failed_clients_of_a_week_in_which_nobody_was_mailed_are_always_too_many(
    failed: int, others: dict[str, int]
) -> None:
    # Two groups of two clients each, say, of which each takes its refusals for bad addresses.
    shards = [shard(shard=0, failed=failed), shard(shard=4, **others)]
    reason = FailedLimit(allowed=5, share=1).why_exceeded("2026-W47", shards)
    assert reason is not None
    assert f"{failed} of {failed + sum(others.values())} clients failed, and none was mailed" in (
        reason
    )
    assert "`shardpost email --week 2026-W47 --again FAILED`" in reason


def test_a_week_in_which_nobody_failed_needs_nobody_to_be_mailed() -> None:
    limit = FailedLimit(allowed=0, share=0)
    assert limit.why_exceeded("2026-W47", []) is None
    assert limit.why_exceeded("2026-W47", [shard(suppressed=1, open=1)]) is None


def test_the_reason_says_how_many_and_what_to_do() -> None:
    reason = FailedLimit(0, 0).why_exceeded("2026-W47", [shard(failed=1, sent=2, suppressed=3)])
    assert reason is not None
    assert "2026-W47: 1 of 6 clients failed" in reason
    assert "`shardpost email --week 2026-W47 --again FAILED`" in reason


def test_the_limit_of_failed_is_that_of_the_settings() -> None:
    given = {"SHARDPOST_MAIL_FAILED_ALLOWED": "7", "SHARDPOST_MAIL_FAILED_SHARE": "0.5"}
    assert FailedLimit.of(load(given)) == FailedLimit(7, 0.5)


@pytest.mark.parametrize(
    ("suppressed", "sent", "is_too_many"),
    [(5, 0, False), (6, 0, True), (6, 6, False), (7, 6, True), (5000, 5000, False)],
)
def test_too_many_suppressed_is_more_than_a_number_and_more_than_a_share(
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


def test_the_limit_of_suppressed_is_that_of_the_settings() -> None:
    given = {"SHARDPOST_MAIL_SUPPRESSED_ALLOWED": "7", "SHARDPOST_MAIL_SUPPRESSED_SHARE": "0.9"}
    assert SuppressedLimit.of(load(given)) == SuppressedLimit(7, 0.9)
