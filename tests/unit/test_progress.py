"""The log lines of a shard while it is mailed."""

import logging

import pytest

from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.outcomes import PROGRESS_SECONDS, Progress


@pytest.fixture
def progress(caplog: pytest.LogCaptureFixture) -> Progress:
    caplog.set_level(logging.INFO)
    return Progress.of(IsoWeek(2026, 47), 3, 2, LedgerIndex.fold([]))


def test_counts_are_logged_at_the_end_unless_they_are_the_last_that_were(
    progress: Progress, caplog: pytest.LogCaptureFixture
) -> None:
    progress.record("a", None, DeliveryState.SENT)
    progress.log_every_few_seconds(0, PROGRESS_SECONDS)
    progress.log_last()
    [line] = caplog.messages
    assert line.startswith("2026-W47 shard 3: 1 of 2 sent, 0 failed")
    progress.record("b", None, DeliveryState.SENT)
    progress.log_last()
    assert "2 of 2 sent" in caplog.messages[1]


def test_a_shard_with_nothing_to_do_is_logged_at_the_end_and_a_long_one_meanwhile(
    progress: Progress, caplog: pytest.LogCaptureFixture
) -> None:
    progress.log_last()
    assert len(caplog.messages) == 1
    for now in (PROGRESS_SECONDS, PROGRESS_SECONDS + 1, 2 * PROGRESS_SECONDS):
        progress.log_every_few_seconds(1, now)
    assert len(caplog.messages) == 3
