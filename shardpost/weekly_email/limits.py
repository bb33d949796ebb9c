"""Limits of failed, suppressed and late clients, above which a week needs attention.

A faulty producer that deletes records of `clients`, or marks everybody as not subscribed, looks for
each single client like an unsubscription.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardpost.weekly_email.model.week import FrozenWeek
from shardpost.weekly_email.model.week_report import STATES, causes_text, late_line


def totals(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return {state: clients} summed over shards, whose counts are as in `status_document`."""
    rows = list(shards)
    return {state: sum(shard[state] for shard in rows) for state in STATES}


# Up to this number of clients in a state is never too many, whatever their share.
FEW = 5
_FIXES = {
    "failed": (
        "failed",
        "Fix the mail server, or the addresses in the topic `clients`, compact, and run"
        " `shardpost email --week {week} --again FAILED`, which uses the new contacts.",
    ),
    "suppressed": (
        "are not subscribed",
        "If they have not unsubscribed, fix their records in the topic `clients`, compact, and run"
        " `shardpost email --week {week} --again SUPPRESSED`, which mails those who are subscribed"
        " by then.",
    ),
}


@dataclass(frozen=True)
class MailLimits:
    """The shares of all clients that the settings allow to fail or to be suppressed."""

    mail_failed_share: float
    mail_suppressed_share: float

    def exceeded(self, state: str, week: object, counts: Mapping[str, int]) -> str | None:
        """Return how many clients are in a state, if that is too many.

        `counts` are those of `totals`. Where clients failed and nobody was mailed, one is too many:
        nothing shows that the mail server works.
        """
        count, clients = counts[state], sum(counts.values())
        share = {"failed": self.mail_failed_share, "suppressed": self.mail_suppressed_share}[state]
        limit = f", more than SHARDPOST_MAIL_{state.upper()}_SHARE allows"
        if state == "failed" and count and not counts["sent"]:
            limit = ", and nobody was mailed: the mail server may be refusing everything"
        elif count <= max(FEW, share * clients):
            return None
        return f"{week}: {count} of {clients} clients {_FIXES[state][0]}{limit}"


def why_too_late(limits: MailLimits, frozen: FrozenWeek, late: Mapping[str, Any]) -> str | None:
    """Return a message about records that arrived after a freeze, or None if they affect few.

    `late` is a `late_document`. These clients got no e-mail or a wrong one, so the limit is
    that of failed clients.
    """
    few = max(FEW, limits.mail_failed_share * frozen.recipients)
    if late["missed"] + late["changed"] <= few:
        return None
    return (
        f"{frozen.week}: {late_line(late)}. That exceeds SHARDPOST_MAIL_FAILED_SHARE of"
        f" {frozen.recipients} clients: find the producer of the late records (`shardpost explain"
        " CLIENT`)"
    )


def too_many(limits: MailLimits, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return for each state with too many clients what to do, with and without causes and clients.

    `document` is a `status_document`.
    """
    week, counts, found = document["week"], totals(document["shards"]), []
    for state, (_, fix) in _FIXES.items():
        if text := limits.exceeded(state, week, counts):
            why = causes_text(document["causes"][state], counts[state])
            to_do = f". `shardpost emails --week {week} --state {state}` lists them all."
            to_do = f"{to_do} {fix.format(week=week)}"
            found.append((f"{text}{why and f': {why}'}{to_do}", f"{text}{to_do}"))
    return found
