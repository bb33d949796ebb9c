"""Requests to the Spark job `weekly_email`, from commands, DAGs and the page.

Shards are written as `0-3`, `2` or `0,2,5-7` and cut into groups, one task each. DAGs and plugins
import this file: it needs neither pandas nor templates.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator

from shardpost.errors import WrongArgumentError
from shardpost.spark.job import JobSpec
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import ranges_text

WEEKLY_EMAIL = JobSpec("weekly_email")
# More than any topic has: at most six digits are read.
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
            raise WrongArgumentError(f"shards {text!r}: expected a form such as 0-3, 2 or 0,2,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise WrongArgumentError(
                f"shards {text!r}: expected the lower number first, found {part.strip()}"
            )
        if last >= count:
            raise WrongArgumentError(
                f"shards {text!r}: expected 0 to {count - 1}, found {part.strip()}"
            )
        named.update(range(first, last + 1))
    return sorted(named)


def require_shard_form(text: str | None) -> None:
    """Reject text that never names shards, whatever their number."""
    parse_shards(text, MOST_SHARDS)


def shard_text(shards: Sequence[int]) -> str:
    """Return ascending shards in the form that `parse_shards` reads: [0, 1, 2, 5] is `0-2,5`."""
    return ranges_text(shards).replace(" ", "")


def shard_label(shards: Sequence[int]) -> str:
    """Return a group's name: `shards 0-3`, or `shard 4`."""
    return f"{'shard' if len(shards) == 1 else 'shards'} {shard_text(shards)}"


# For a task of a DAG, also while another sends at the rate: that and many clients take long.
SEND_TIME = timedelta(hours=12)
# How often a mail whose delivery is unknown may be sent again, per client and week.
MOST_RESENDS = 1


@dataclass(frozen=True)
class ResendPolicy:
    """Which clients a run mails besides the open ones: unknown, failed or suppressed."""

    resend_unknown: bool = False
    again_failed: bool = False
    again_suppressed: bool = False

    def selects(self, state: DeliveryState | None, resends: int = 0) -> bool:
        """Return whether this run mails a client in that state (None: open).

        `sending` without an outcome is unknown; `sent` is final. A delivery still unknown after
        `resends` resends is left to a person.
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
    """What a run does; FREEZE and SEND freeze the audience of an ended week if necessary."""

    FREEZE = "freeze"
    LIST_GROUPS = "list groups"  # the result of FREEZE without freezing
    DRY_RUN = "dry run"
    SEND = "send"


@dataclass(frozen=True)
class EmailRequest:
    """One run: its week, shards, time and mode.

    `now` defaults to the clock's time. `shards` is written as `0-3` or `0,2,5-7` (else UsageError),
    or None for all. `early`: a week that has not ended, as of `as_of` at the latest (None: `now`).
    `again`: FAILED mails failed clients again, SUPPRESSED those not subscribed then but subscribed
    now. `on_unknown`: None for the setting.
    `is_part`: a later step decides about refusals and limits from the answers of all jobs.
    `is_scheduled`: the run may skip its week. `country_changed`, `accept_drop`: accept what would
    be refused (plausibility.py). `recipients`: the folder (dry_runs.py) or text file for the lists
    of a dry run; None puts them into the result.
    """

    week: Annotated[IsoWeek, PlainValidator(IsoWeek.parse), PlainSerializer(str)]
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    mode: Mode = Mode.SEND
    shards: str | None = None
    early: bool = False
    as_of: datetime | None = None
    again: Literal["FAILED", "SUPPRESSED"] | None = None
    on_unknown: Literal["hold", "resend"] | None = None
    is_part: bool = False
    is_scheduled: bool = False
    country_changed: bool = False
    accept_drop: bool = False
    recipients: Path | None = None

    def __post_init__(self) -> None:
        require_shard_form(self.shards)

    @property
    def is_real(self) -> bool:
        """Whether this run is a step of mailing its week, not a read-only run."""
        return self.mode in (Mode.FREEZE, Mode.SEND)

    def resend_policy(self, on_unknown: str) -> ResendPolicy:
        """Return which clients this run mails again; `on_unknown` is the setting's value."""
        is_resent = (self.on_unknown or on_unknown) == "resend"
        return ResendPolicy(is_resent, self.again == "FAILED", self.again == "SUPPRESSED")

    def skipped(self, reason: str) -> dict[str, Any]:
        """Return the result of a run that skips its week: an empty `as_frozen` with the reason."""
        nothing = {"shards": 0, "recipients": 0, "groups": []}
        return {"week": str(self.week), "snapshot": None, **nothing, "skipped": reason}
