"""How many failed or suppressed clients of a week need a person's attention."""

import pytest

from shardpost.settings import load
from shardpost.weekly_email.limits import limits_of, too_many, totals
from shardpost.weekly_email.model.week_report import STATES

WEEK = "2026-W47"
NONE = dict.fromkeys(STATES, 0)


def why(state: str, allowed: int, share: float, **counts: int) -> str | None:
    given = {f"SHARDPOST_MAIL_{state.upper()}_ALLOWED": str(allowed)}
    given[f"SHARDPOST_MAIL_{state.upper()}_SHARE"] = str(share)
    [limit] = [limit for limit in limits_of(load(given)) if limit.state == state]
    return limit.why_exceeded(WEEK, NONE | counts)


@pytest.mark.parametrize(
    ("state", "share", "count", "sent", "is_too_many"),
    [
        *[("failed", 0.05, 5, 1, False), ("failed", 0.05, 6, 1, True)],
        *[("failed", 0.05, 6, 114, False), ("failed", 0.05, 7, 113, True)],
        ("failed", 0.05, 50, 950, False),
        *[("suppressed", 0.5, 5, 0, False), ("suppressed", 0.5, 6, 0, True)],
        *[("suppressed", 0.5, 6, 6, False), ("suppressed", 0.5, 7, 6, True)],
        ("suppressed", 0.5, 5000, 5000, False),
    ],
)
def test_too_many_is_more_than_a_number_and_more_than_a_share(
    state: str, share: float, count: int, sent: int, is_too_many: bool
) -> None:
    reason = why(state, 5, share, **{state: count, "sent": sent})
    assert (reason is not None) is is_too_many


@pytest.mark.parametrize("others", [{}, {"suppressed": 9}, {"unknown": 9}, {"open": 9}])
@pytest.mark.parametrize("failed", [1, 4])
def test_failed_clients_of_a_week_in_which_nobody_was_mailed_are_always_too_many(
    failed: int, others: dict[str, int]
) -> None:
    reason = why("failed", 5, 1, failed=failed, **others)
    assert reason is not None
    assert f"{failed} of {failed + sum(others.values())} clients failed, and none was mailed" in (
        reason
    )
    assert "`shardpost email --week 2026-W47 --again FAILED`" in reason


def test_a_week_in_which_nobody_failed_needs_nobody_to_be_mailed() -> None:
    assert why("failed", 0, 0) is None
    assert why("failed", 0, 0, suppressed=1, open=1) is None


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (
            {"failed": 600, "sent": 300, "suppressed": 100},
            f"{WEEK}: 600 of 1000 clients failed, more than SHARDPOST_MAIL_FAILED_ALLOWED and"
            f" SHARDPOST_MAIL_FAILED_SHARE allow. `shardpost emails --week {WEEK} --state failed`"
            " lists them all. Fix the mail server, or the addresses in the topic `clients`,"
            f" compact, and run `shardpost email --week {WEEK} --again FAILED`, which uses the new"
            " contacts.",
        ),
        (
            {"suppressed": 999, "sent": 1},
            f"{WEEK}: 999 of 1000 clients are not subscribed, more than"
            " SHARDPOST_MAIL_SUPPRESSED_ALLOWED and SHARDPOST_MAIL_SUPPRESSED_SHARE allow."
            f" `shardpost emails --week {WEEK} --state suppressed` lists them all. If they have not"
            " unsubscribed, fix their records in the topic `clients`, compact, and run"
            f" `shardpost email --week {WEEK} --again SUPPRESSED`, which mails those who are"
            " subscribed by then.",
        ),
    ],
)
def test_the_reason_says_how_many_and_the_way_back(counts: dict[str, int], reason: str) -> None:
    shards = [NONE | {"shard": 7, state: count} for state, count in counts.items()]
    assert totals(shards) == NONE | counts
    assert too_many(load({}), WEEK, [{"shards": shards[:1]}, {"shards": shards[1:]}, {}]) == [
        reason
    ]
