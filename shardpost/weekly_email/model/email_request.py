"""What one run of the job `weekly_email` is asked to do."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import ResendPolicy


class Mode(StrEnum):
    """What a run does; FREEZE and SEND freeze the audience of a week that ended, if it is not."""

    FREEZE = "freeze"
    LIST_GROUPS = "list groups"  # the result of FREEZE, and nothing is frozen
    DRY_RUN = "dry run"
    SEND = "send"


@dataclass(frozen=True)
class EmailRequest:
    """One run: of which week and shards, when, in which mode.

    `shards` as `0-3` or `0,2,5-7`, None for all. `early`: a week that has not ended, as of `as_of`
    at the latest, None for `now`.
    `again_failed`: mail those again that had failed. `again_suppressed`: mail those that were not
    subscribed, and are now. `on_unknown`: `hold` or `resend`, None for the setting's. `groups`: how
    many jobs share the rate limit. `is_scheduled`: the run may leave its week out. `recipients`:
    the folder or file that a dry run writes its lists to, None for into the result.
    """

    week: IsoWeek
    now: datetime
    mode: Mode
    shards: str | None = None
    early: bool = False
    as_of: datetime | None = None
    again_failed: bool = False
    again_suppressed: bool = False
    on_unknown: str | None = None
    groups: int = 1
    is_scheduled: bool = False
    recipients: Path | None = None

    @property
    def is_real(self) -> bool:
        """Whether this run is a step of mailing its week, and not only looks at it."""
        return self.mode in (Mode.FREEZE, Mode.SEND)

    @property
    def freezes(self) -> bool:
        """Whether this run freezes the audience of its week, if no other has."""
        return self.is_real and not self.early

    def resend_policy(self, on_unknown: str) -> ResendPolicy:
        """Return whom this run mails again; `on_unknown` is the setting's `hold` or `resend`."""
        is_resent = (self.on_unknown or on_unknown) == "resend"
        return ResendPolicy(is_resent, self.again_failed, self.again_suppressed)
