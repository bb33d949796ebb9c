"""What of a week's counts a person has to look at."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from shardpost.weekly_email.model.failed_limit import FailedLimit, FailedSettings
from shardpost.weekly_email.model.suppressed_limit import SuppressedLimit, SuppressedSettings


class LimitSettings(FailedSettings, SuppressedSettings, Protocol):
    """The settings that the limits are made of."""


def too_many(
    settings: LimitSettings, week: object, shards: Iterable[Mapping[str, int]]
) -> list[str]:
    """Return what to do about each state that too many clients of the week are in.

    `shards` are counts as in `counts_document`.
    """
    found = list(shards)
    limits = (FailedLimit.of(settings), SuppressedLimit.of(settings))
    reasons = (limit.why_exceeded(week, found) for limit in limits)
    return [reason for reason in reasons if reason]
