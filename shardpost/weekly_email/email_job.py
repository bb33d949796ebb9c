"""The Spark job `weekly_email`: what a run is asked for, as commands, DAGs and the page ask.

Shards as people write them: `0-3`, `2`, `0,2,5-7`; and groups of them, one task each. DAGs and
plugins import this file: it needs no pandas and no templates.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator

from shardpost.errors import UsageError
from shardpost.spark.job import JobSpec
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import ranges_text

WEEKLY_EMAIL = JobSpec("weekly_email")
# More than any topic has; six digits are read.
MOST_SHARDS = 1_000_000
_SPAN = re.compile(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?")


def parse_shards(text: str | None, count: int) -> list[int]:
    """Return the named shards, ascending, each once; all of `count` for None."""
    if text is None:
        return list(range(count))
    named: set[int] = set()
    for part in text.split(","):
        match = _SPAN.fullmatch(part)
        if not match:
            raise UsageError(f"shards {text!r}: expected a form such as 0-3, 2 or 0,2,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(
                f"shards {text!r}: expected the lower number first, found {part.strip()}"
            )
        if last >= count:
            raise UsageError(f"shards {text!r}: expected 0 to {count - 1}, found {part.strip()}")
        named.update(range(first, last + 1))
    return sorted(named)


def require_shard_form(text: str | None) -> None:
    """Refuse shards that are none, however many there are."""
    parse_shards(text, MOST_SHARDS)


def shard_text(shards: Sequence[int]) -> str:
    """Return ascending shards in the form that `parse_shards` reads: [0, 1, 2, 5] is `0-2,5`."""
    return ranges_text(shards).replace(" ", "")


def shard_groups(shards: Sequence[int], size: int) -> list[list[int]]:
    """Cut shards into groups of `size`, one for each mapped task."""
    return [list(shards[i : i + size]) for i in range(0, len(shards), size)]


def shard_label(shards: Sequence[int]) -> str:
    """Return a group's name: `shards 0-3`, or `shard 4`."""
    return f"{'shard' if len(shards) == 1 else 'shards'} {shard_text(shards)}"


# How often a mail whose delivery is unknown may be sent again, per client and week.
MOST_RESENDS = 1


@dataclass(frozen=True)
class ResendPolicy:
    """Which clients a run mails besides the open ones: unknown, failed or suppressed ones."""

    resend_unknown: bool = False
    again_failed: bool = False
    again_suppressed: bool = False

    def selects(self, state: DeliveryState | None, resends: int = 0) -> bool:
        """Tell whether a client in that state (None: open) is mailed by this run.

        A `sending` without outcome is unknown; `sent` is final. What was sent again `resends`
        times, and is still unknown, is left to a person.
        """
        match state:
            case None:
                return True
            case DeliveryState.SENDING | DeliveryState.UNKNOWN:
                return self.resend_unknown and resends < MOST_RESENDS
            case DeliveryState.FAILED:
                return self.again_failed
            case DeliveryState.SUPPRESSED:
                return self.again_suppressed
            case DeliveryState.SENT:
                return False


class Mode(StrEnum):
    """What a run does; FREEZE and SEND freeze the audience of a week that ended, if it is not."""

    FREEZE = "freeze"
    LIST_GROUPS = "list groups"  # the result of FREEZE, and nothing is frozen
    DRY_RUN = "dry run"
    SEND = "send"


@dataclass(frozen=True)
class EmailRequest:
    """One run: of which week and shards, when, in which mode.

    `now` is by default the clock's time. `shards` as `0-3` or `0,2,5-7` (UsageError for what is not
    of that form), None for all. `early`: a
    week that has not ended, as of `as_of` at the latest, None for `now`. `again`: FAILED mails
    those again that had failed, SUPPRESSED those that were not subscribed, and are now.
    `on_unknown` None is the setting's. `groups`: how many jobs share the rate limit.
    `is_part`: a later step decides, by the answers of all jobs, about refusals and limits.
    `is_scheduled`: the run may skip its week. `country_changed`, `accept_drop`: what would be
    refused is meant (plausibility.py). `recipients`: the folder (dry_runs.py) or file (as text)
    that a dry run writes its lists to, None for into the result. `kept_as`: the run as whose they
    are kept for the page, None: they are not.
    """

    week: Annotated[IsoWeek, PlainValidator(IsoWeek.parse), PlainSerializer(str)]
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    mode: Mode = Mode.SEND
    shards: str | None = None
    early: bool = False
    as_of: datetime | None = None
    again: Literal["FAILED", "SUPPRESSED"] | None = None
    on_unknown: Literal["hold", "resend"] | None = None
    groups: int = 1
    is_part: bool = False
    is_scheduled: bool = False
    country_changed: bool = False
    accept_drop: bool = False
    recipients: Path | None = None
    kept_as: str | None = None

    def __post_init__(self) -> None:
        require_shard_form(self.shards)

    @property
    def is_real(self) -> bool:
        """Whether this run is a step of mailing its week, and not only looks at it."""
        return self.mode in (Mode.FREEZE, Mode.SEND)

    def resend_policy(self, on_unknown: str) -> ResendPolicy:
        """Return which clients this run mails again; `on_unknown` is the setting's value."""
        is_resent = (self.on_unknown or on_unknown) == "resend"
        return ResendPolicy(is_resent, self.again == "FAILED", self.again == "SUPPRESSED")

    def skipped(self, reason: str) -> dict[str, Any]:
        """Return the result of a run that skips its week: that of `as_frozen`, empty, and why."""
        nothing = {"shards": 0, "recipients": 0, "groups": []}
        return {"week": str(self.week), "snapshot": None, **nothing, "skipped": reason}


@dataclass(frozen=True)
class RunRules:
    """What the settings say of runs: when, of what, and how much at once."""

    weekly_send: str
    weekly_lateness_days: int
    mail_snapshot_age: float
    mail_rate: float | None
    max_drop: float
    on_unknown: str
    shards_per_task: int
