"""How many clients of a week may have failed before a person has to look."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shardpost.weekly_email.model.causes import Cause
from shardpost.weekly_email.model.share_limit import ShareLimit, totals, why


class FailedSettings(Protocol):
    """The settings that the limit is made of."""

    @property
    def mail_failed_allowed(self) -> int:
        """Failed clients that are always allowed."""

    @property
    def mail_failed_share(self) -> float:
        """The share of failed clients that is allowed."""


@dataclass(frozen=True)
class FailedLimit(ShareLimit):
    """The limit of failed clients.

    Where nobody was mailed, one is too many: nothing shows that the mail server works.
    """

    @classmethod
    def of(cls, settings: FailedSettings) -> "FailedLimit":
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
                f" server may refuse everything{why(causes, failed)}. {_what_to_do(week)}"
            )
        if not self.is_exceeded(failed, clients):
            return None
        return (
            f"{week}: {failed} of {clients} clients failed, more than SHARDPOST_MAIL_FAILED_ALLOWED"
            f" and SHARDPOST_MAIL_FAILED_SHARE allow{why(causes, failed)}. {_what_to_do(week)}"
        )


def _what_to_do(week: object) -> str:
    return (
        f"`shardpost emails --week {week} --state failed` lists them all. Mend the mail server, or"
        " what is wrong with the addresses in the topic `clients`, compact, and run"
        f" `shardpost email --week {week} --again FAILED`, which takes contacts as of then."
    )
