"""The tables of the weekly e-mail; no snapshot names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from shardpost.delta.table import Array, Json, Table, columns, columns_of
from shardpost.errors import NEEDS_ATTENTION, ShardpostError, one_line
from shardpost.instants import parse_instant
from shardpost.weekly_email.model.email_context import Sender
from shardpost.weekly_email.model.ledger import CLOSED_STATES, DeliveryState
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.week import FrozenWeek
from shardpost.weekly_email.model.week_report import ShardStatus

POSITION = columns("position STRING, ticker STRING, amount STRING, exchange STRING")
# Frozen audiences: a row per client, a table per freeze, which `frozen_weeks` names.
AUDIENCES = Table(
    "audiences",
    (
        *columns("client STRING, name STRING, email STRING, has_contact BOOLEAN"),
        ("positions", Array(POSITION)),
        *columns("week STRING, shard INT, language STRING"),
    ),
    "shard",
    contacts=("client", "name", "email", "has_contact", "positions", "language"),
    comments={
        "name": "as of the freeze",
        "email": "as of the freeze",
        "has_contact": "`clients` knew the client",
        "positions": "as in the e-mail",
        "shard": "partition in `weekly-emails`",
        "language": "`Language` of the client's record",
    },
)
FROZEN_WEEKS = Table(
    "frozen_weeks",
    columns_of(FrozenWeek),
    comments={
        "audience": "folder in `audiences`",
        "snapshot": "source",
        "shards": "partitions of `weekly-emails`",
        "audience_erased_at": "since then nobody can be mailed; else null",
        "unknown_positions": "open positions on exchanges without a country",
    },
)


def audience_table(audience: str) -> Table:
    """Return the table of an audience by its folder's name, such as `2026-W47.3f9c`."""
    return replace(AUDIENCES, folder=f"{AUDIENCES.name}/{audience}")


@dataclass(frozen=True)
class ClosedWeek:
    """One row of `closed_weeks`: how many clients were in which state, by partition."""

    week: str
    closed_at: datetime
    sent: tuple[int, ...]
    failed: tuple[int, ...]
    unknown: tuple[int, ...]
    suppressed: tuple[int, ...]
    emptied_at: datetime | None = None

    @classmethod
    def of(
        cls, week: object, at: datetime, shards: Sequence[Mapping[DeliveryState, int]]
    ) -> "ClosedWeek":
        """Return the row of a week from the counts of its shards."""
        sent, failed, unknown, suppressed = (
            tuple(counts[state] for counts in shards) for state in CLOSED_STATES
        )
        return cls(str(week), at, sent, failed, unknown, suppressed)

    @property
    def explanation(self) -> str:
        """Why the week cannot be mailed and has no ledger records."""
        return (
            f"{self.week} was closed on {self.closed_at:%Y-%m-%d} (SHARDPOST_LEDGER_DAYS): its"
            " delivery records were deleted, and it can never be mailed again"
        )

    @property
    def shards(self) -> list[ShardStatus]:
        """The counts by shard, without the ids of unknown clients."""
        columns = {str(state): getattr(self, str(state)) for state in CLOSED_STATES}
        return [
            ShardStatus(shard, **{name: counts[shard] for name, counts in columns.items()})
            for shard in range(len(self.sent))
        ]


# Weeks that can never be mailed again: a row of the closing, another of the end of its records.
CLOSED_WEEKS = Table(
    "closed_weeks",
    columns_of(ClosedWeek),
    comments={
        "closed_at": "since then nobody can be mailed",
        "sent": "clients, by ledger partition",
        "emptied_at": "when its records were gone",
    },
)


class WeekPausedError(ShardpostError):
    """The week is paused; a retry does not help until a person resumes it."""

    exit_code = NEEDS_ATTENTION


@dataclass(frozen=True)
class PausedWeek:
    """One row of `paused_weeks`: a week was paused or resumed; when, by whom and why."""

    week: str
    is_paused: bool
    at: datetime
    who: str
    why: str

    @property
    def explanation(self) -> str:
        """Why the week is not mailed, and the remedy."""
        return one_line(
            f"{self.week} was paused on {self.at:%Y-%m-%d %H:%M} UTC by {self.who} ({self.why}):"
            " the remaining clients are not mailed yet. Use `shardpost emails resume --week"
            f" {self.week} --why …`, then run it again"
        )

    def as_json(self) -> dict[str, str]:
        """Return it as `emails --json` has it."""
        return {"at": self.at.isoformat(), "who": self.who, "why": self.why}

    @classmethod
    def from_json(cls, week: object, form: Mapping[str, str]) -> "PausedWeek":
        """Return what `as_json` wrote of a paused week."""
        return cls(str(week), True, parse_instant(form["at"]), form["who"], form["why"])


# Weeks that a person paused and resumed: the last row of a week counts.
PAUSED_WEEKS = Table(
    "paused_weeks", columns_of(PausedWeek), comments={"at": "latest in the newest row"}
)


@dataclass(frozen=True)
class MailLook:
    """One row of `mail_looks`: the templates and sender of some shards of a week since a time.

    `files` are all templates by name, including the shipped ones, which may differ between
    releases. `language` and `most_rows` as MailTemplates has them.
    """

    week: str
    shards: tuple[int, ...]
    at: datetime
    sender_name: str
    sender_address: str
    unsubscribe_url: str
    list_id: str
    files: Json[Mapping[str, str]]
    language: str | None
    most_rows: int

    @property
    def templates(self) -> MailTemplates:
        """The templates as they were."""
        folder = f"the templates of {self.week} as of {self.at:%Y-%m-%d %H:%M} UTC"
        return MailTemplates(tuple(self.files.items()), folder, self.language, self.most_rows)

    def senders(self, secrets: str | None) -> list[Sender]:
        """Return the former sender with each of these secrets, since the one used is not kept."""
        common = (self.sender_name, self.sender_address, self.unsubscribe_url, self.list_id)
        return [Sender(*common, secret) for secret in (secrets.split() if secrets else [None])]

    def is_like(self, other: "MailLook") -> bool:
        """Return whether sender and templates are the same, ignoring shards and times."""
        return replace(self, shards=other.shards, at=other.at) == other


# Templates and senders of mails; for a shard, the last row before a mail counts.
MAIL_LOOKS = Table(
    "mail_looks",
    columns_of(MailLook),
    comments={
        "at": "since when",
        "sender_name": "`SHARDPOST_MAIL_FROM`",
        "unsubscribe_url": "`SHARDPOST_UNSUBSCRIBE_URL`",
        "list_id": "`SHARDPOST_MAIL_LIST_ID`",
        "files": "JSON: all templates by name",
        "language": "`SHARDPOST_MAIL_LANGUAGE`; null: English, numbers unchanged",
        "most_rows": "of each HTML table",
    },
)


@dataclass(frozen=True)
class LedgerMark:
    """One row of `ledger_marks`: which topic held the ledger at a time, and its high watermarks.

    The first mark of a week is written before its first mail, later ones at the end of each run.
    """

    week: str
    topic: str
    topic_id: str
    ends: tuple[int, ...]
    marked_at: datetime
    accepted_by: str | None = None


LEDGER_MARKS = Table(
    "ledger_marks",
    columns_of(LedgerMark),
    comments={
        "topic_id": "Kafka's; changes if recreated",
        "ends": "high watermarks; in the first row none of the week's records is before them",
        "marked_at": "latest in the newest row",
        "accepted_by": "who ran `emails accept-ledger`: earlier rows do not count; else null",
    },
)
