"""How many clients of a week may be suppressed before a person has to look.

A producer's fault that deletes all records of `clients`, or writes that nobody is subscribed, looks
at each single client like one that has unsubscribed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shardpost.weekly_email.model.causes import Cause
from shardpost.weekly_email.model.share_limit import ShareLimit, totals, why


class SuppressedSettings(Protocol):
    """The settings that the limit is made of."""

    @property
    def mail_suppressed_allowed(self) -> int:
        """Suppressed clients that are always allowed."""

    @property
    def mail_suppressed_share(self) -> float:
        """The share of suppressed clients that is allowed."""


@dataclass(frozen=True)
class SuppressedLimit(ShareLimit):
    """The limit of suppressed clients."""

    @classmethod
    def of(cls, settings: SuppressedSettings) -> "SuppressedLimit":
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
            f"{why(causes, suppressed)}. `shardpost emails --week {week} --state suppressed` lists"
            " them all. If they have not unsubscribed, mend their records in the topic `clients`,"
            f" compact, and run `shardpost email --week {week} --again SUPPRESSED`, which"
            " mails those who are subscribed then."
        )
