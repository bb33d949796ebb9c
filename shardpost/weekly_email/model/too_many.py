"""What of a week's counts a person has to look at."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from shardpost.weekly_email.model.failed_limit import FailedLimit, FailedSettings
from shardpost.weekly_email.model.suppressed_limit import SuppressedLimit, SuppressedSettings
from shardpost.weekly_email.model.week_status import causes_in


class LimitSettings(FailedSettings, SuppressedSettings, Protocol):
    """The settings that the limits are made of."""


def too_many(
    settings: LimitSettings, week: object, documents: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return what to do about each state that too many clients of the week are in.

    `documents` are those of one run or of several, each of other shards, as `status_document`
    makes them; one of a dry run counts nobody.
    """
    found = list(documents)
    shards = [shard for document in found for shard in document.get("shards", ())]
    causes = causes_in(found)
    failed = FailedLimit.of(settings).why_exceeded(week, shards, causes["failed"])
    suppressed = SuppressedLimit.of(settings).why_exceeded(week, shards, causes["suppressed"])
    return [reason for reason in (failed, suppressed) if reason]
