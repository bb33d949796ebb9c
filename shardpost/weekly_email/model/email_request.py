"""What a run of the weekly e-mail is asked for, and what all e-mails of the run have in common.

Shards as people write them: `0-3`, `2`, `0,2,5-7`; and groups of them, one task each. DAGs and
plugins import this file: it needs no pandas and no templates.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import PlainSerializer, PlainValidator

from shardpost.addresses import mailbox
from shardpost.errors import UsageError, single_line
from shardpost.unsubscribe import keys_of
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.resend_policy import ResendPolicy
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import ranges_text

# Characters of a name in a header or a log line.
LONGEST_NAME = 100


@dataclass(frozen=True)
class Sender:
    """Who sends the e-mails: name, address, where to unsubscribe, and the id of the list.

    `secrets` are those of the tokens in links to unsubscribe, None where these have none.
    """

    name: str
    address: str
    unsubscribe_url: str
    list_id: str
    secrets: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, *, mail_from: str, unsubscribe_url: str, list_id: str, secrets: str | None = None
    ) -> "Sender":
        """Check the settings that e-mails are written with; UsageError names the wrong one."""
        try:
            name, address = mailbox(mail_from)
        except ValueError as error:
            raise UsageError(f"setting SHARDPOST_MAIL_FROM={mail_from!r}: {error}") from None
        name = single_line(name, LONGEST_NAME)
        return cls(name, address, unsubscribe_url, list_id, secrets)


@dataclass(frozen=True)
class EmailContext:
    """What all e-mails of a run have in common; `country` is whose stock counts.

    Positions are those of `snapshot`, and the contacts of now those of `newest`.
    """

    week: IsoWeek
    as_of: datetime
    country: str
    sender: Sender
    templates: MailTemplates = field(default_factory=MailTemplates)
    snapshot: int = 0
    newest: int = 0

    @property
    def is_early(self) -> bool:
        """Whether the audience is not that of the week's end: its contacts are not final."""
        return self.as_of < self.week.end

    @cached_property
    def shared_values(self) -> dict[str, Any]:
        """What templates are given (mail_rows.py) that is the same for all clients."""
        return {
            "country": self.country,
            "week": str(self.week),
            "last_day": (self.week.end - timedelta(days=1)).date(),
            "held_at": self.as_of,
            "is_final": self.as_of == self.week.end,
            "sender_name": self.sender.name,
            "sender_address": self.sender.address,
        }

    @property
    def domain(self) -> str:
        """The domain of the sender, in which Message-ID and List-Id are made."""
        return self.sender.address.rpartition("@")[2]

    @property
    def unsubscribe_site(self) -> str:
        """Where the URL to unsubscribe leads, without anything that names a client."""
        parts = urlsplit(self.sender.unsubscribe_url)
        return f"{parts.scheme}://{parts.netloc}/"

    def unsubscribe_url(self, client: str) -> str:
        """Return the client's own URL to unsubscribe, percent-encoded."""
        sender = self.sender
        url = sender.unsubscribe_url.replace("{week}", str(self.week))
        if sender.secrets is not None:
            token = keys_of(sender.secrets)[0].token(sender.list_id, client)
            url = url.replace("{token}", token)
        return url.replace("{client}", quote(client, safe=""))


# More than any topic has; six digits are read.
MOST_SHARDS = 1_000_000
_SPAN = re.compile(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?")


def parse_shards(text: str | None, count: int) -> list[int]:
    """Return the named shards, ascending, each once; all of `count` for None."""
    if text is None:
        return list(range(count))
    named: set[int] = set()
    for part in text.split(","):
        first, last = _shard_span(text, part)
        if last >= count:
            raise UsageError(f"shards {text!r}: expected 0 to {count - 1}, found {part.strip()}")
        named.update(range(first, last + 1))
    return sorted(named)


def require_shard_form(text: str | None) -> None:
    """Refuse shards that are none, however many there are."""
    parse_shards(text, MOST_SHARDS)


def _shard_span(text: str, part: str) -> tuple[int, int]:
    """Return the first and the last shard of a part of the text."""
    match = _SPAN.fullmatch(part)
    if not match:
        raise UsageError(f"shards {text!r}: expected a form such as 0-3, 2 or 0,2,5-7")
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        raise UsageError(f"shards {text!r}: expected the lower number first, found {part.strip()}")
    return first, last


def shard_text(shards: Sequence[int]) -> str:
    """Return ascending shards in the form that `parse_shards` reads: [0, 1, 2, 5] is `0-2,5`."""
    return ranges_text(shards).replace(" ", "")


def shard_groups(shards: Sequence[int], size: int) -> list[list[int]]:
    """Cut shards into groups of `size`, one for each mapped task."""
    return [list(shards[i : i + size]) for i in range(0, len(shards), size)]


def shard_label(shards: Sequence[int]) -> str:
    """Return a group's name: `shards 0-3`, or `shard 4`."""
    return f"{'shard' if len(shards) == 1 else 'shards'} {shard_text(shards)}"


class Mode(StrEnum):
    """What a run does; FREEZE and SEND freeze the audience of a week that ended, if it is not."""

    FREEZE = "freeze"
    LIST_GROUPS = "list groups"  # the result of FREEZE, and nothing is frozen
    DRY_RUN = "dry run"
    SEND = "send"


@dataclass(frozen=True)
class EmailRequest:
    """One run: of which week and shards, when, in which mode.

    `now` is by default the clock's time. `shards` as `0-3` or `0,2,5-7`, None for all. `early`: a
    week that has not ended, as of `as_of` at the latest, None for `now`. `again`: FAILED mails
    those again that had failed, SUPPRESSED those that were not subscribed, and are now.
    `on_unknown` None is the setting's. `groups`: how many jobs share the rate limit.
    `is_part`: a later step decides, by the answers of all jobs, about refusals and limits.
    `is_scheduled`: the run may skip its week. `country_changed`, `accept_drop`: what would be
    refused is meant (plausibility.py). `recipients`: the folder (dry_run_file.py) or file (as text)
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
