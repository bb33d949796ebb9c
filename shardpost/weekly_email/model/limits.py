"""How many clients of a week may be failed or suppressed before a run needs attention.

A faulty producer that deletes the records of `clients`, or marks everybody as not subscribed, looks
for each single client as if that one had unsubscribed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shardpost.weekly_email.model.week_report import STATES, Cause, causes_in, causes_text


class LimitSettings(Protocol):
    """The settings that the limits are made of; `allowed` clients are always allowed."""

    @property
    def mail_failed_allowed(self) -> int: ...  # noqa: D102

    @property
    def mail_failed_share(self) -> float: ...  # noqa: D102

    @property
    def mail_suppressed_allowed(self) -> int: ...  # noqa: D102

    @property
    def mail_suppressed_share(self) -> float: ...  # noqa: D102


@dataclass(frozen=True)
class ShareLimit:
    """A limit on clients in one state: exceeded by more than both a number and a share of all."""

    allowed: int
    share: float

    def is_exceeded(self, count: int, clients: int) -> bool:
        """Tell whether so many of all clients are too many."""
        return count > max(self.allowed, self.share * clients)


def totals(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return {state: clients} of all shards, whose counts are as in `counts_document`."""
    found = list(shards)
    return {state: sum(shard[state] for shard in found) for state in STATES}


def _why(causes: Iterable[Cause], count: int) -> str:
    """Return the largest causes of `count` clients as the end of a clause; empty without any."""
    text = causes_text(causes, count)
    return f": {text}" if text else ""


@dataclass(frozen=True)
class FailedLimit(ShareLimit):
    """The limit of failed clients.

    Where nobody was mailed, one is too many: nothing shows that the mail server works.
    """

    @classmethod
    def of(cls, settings: LimitSettings) -> "FailedLimit":
        """Return the limit that the settings describe."""
        return cls(settings.mail_failed_allowed, settings.mail_failed_share)

    def why_exceeded(
        self, week: object, shards: Iterable[Mapping[str, int]], causes: Sequence[Cause] = ()
    ) -> str | None:
        """Return what to do about too many failed clients, or None if there are not.

        `shards` are counts as in `counts_document`; `causes` say why they failed.
        """
        counts = totals(shards)
        failed, clients = counts["failed"], sum(counts.values())
        if failed and not counts["sent"]:
            return (
                f"{week}: {failed} of {clients} clients failed, and none was mailed: the mail"
                f" server may refuse everything{_why(causes, failed)}. {_what_to_do(week)}"
            )
        if not self.is_exceeded(failed, clients):
            return None
        return (
            f"{week}: {failed} of {clients} clients failed, more than SHARDPOST_MAIL_FAILED_ALLOWED"
            f" and SHARDPOST_MAIL_FAILED_SHARE allow{_why(causes, failed)}. {_what_to_do(week)}"
        )


def _what_to_do(week: object) -> str:
    return (
        f"`shardpost emails --week {week} --state failed` lists them all. Fix the mail server, or"
        " the addresses in the topic `clients`, compact, and run"
        f" `shardpost email --week {week} --again FAILED`, which uses the new contacts."
    )


@dataclass(frozen=True)
class SuppressedLimit(ShareLimit):
    """The limit of suppressed clients."""

    @classmethod
    def of(cls, settings: LimitSettings) -> "SuppressedLimit":
        """Return the limit that the settings describe."""
        return cls(settings.mail_suppressed_allowed, settings.mail_suppressed_share)

    def why_exceeded(
        self, week: object, shards: Iterable[Mapping[str, int]], causes: Sequence[Cause] = ()
    ) -> str | None:
        """Return what to do about too many suppressed clients, or None if there are not.

        `shards` are counts as in `counts_document`; `causes` say why they are suppressed.
        """
        counts = totals(shards)
        suppressed, clients = counts["suppressed"], sum(counts.values())
        if not self.is_exceeded(suppressed, clients):
            return None
        return (
            f"{week}: {suppressed} of {clients} clients are not subscribed, more than"
            " SHARDPOST_MAIL_SUPPRESSED_ALLOWED and SHARDPOST_MAIL_SUPPRESSED_SHARE allow"
            f"{_why(causes, suppressed)}. `shardpost emails --week {week} --state suppressed` lists"
            " them all. If they have not unsubscribed, fix their records in the topic `clients`,"
            f" compact, and run `shardpost email --week {week} --again SUPPRESSED`, which"
            " mails those who are subscribed by then."
        )


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
