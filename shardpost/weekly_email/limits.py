"""How many clients of a week may be failed, suppressed or late before that needs attention.

A faulty producer that deletes the records of `clients`, or marks everybody as not subscribed, looks
for each single client as if that one had unsubscribed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardpost.weekly_email.model.week import FrozenWeek
from shardpost.weekly_email.model.week_report import (
    STATES,
    Cause,
    causes_in,
    causes_text,
    late_line,
)


def totals(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return {state: clients} of all shards, whose counts are as in `counts_document`."""
    rows = list(shards)
    return {state: sum(shard[state] for shard in rows) for state in STATES}


# So many clients in a state are never too many, whatever share of all they are.
FEW = 5
# What clients in a state are, and what to do about too many of them.
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
    """What shares of all clients the settings allow to have failed, or to be suppressed."""

    mail_failed_share: float
    mail_suppressed_share: float

    def why_exceeded(
        self, state: str, week: object, counts: Mapping[str, int], causes: Sequence[Cause] = ()
    ) -> tuple[str, str] | None:
        """Return what to do about too many clients, and that without clients; None if it is few.

        `counts` are those of `totals`; `causes` say why clients are in the state. Where clients
        failed and nobody was mailed, one is too many: nothing shows that the mail server works.
        """
        count, clients, (what, fix) = counts[state], sum(counts.values()), _FIXES[state]
        share = {"failed": self.mail_failed_share, "suppressed": self.mail_suppressed_share}[state]
        limit = f", more than SHARDPOST_MAIL_{state.upper()}_SHARE allows"
        if state == "failed" and count and not counts["sent"]:
            limit = ", and none was mailed: the mail server may refuse everything"
        elif count <= max(FEW, share * clients):
            return None
        why, found = causes_text(causes, count), f"{week}: {count} of {clients} clients {what}"
        listing = f"`shardpost emails --week {week} --state {state}` lists them all."
        to_do = f". {listing} {fix.format(week=week)}"
        return f"{found}{limit}{why and f': {why}'}{to_do}", f"{found}{limit}{to_do}"


def why_too_late(limits: MailLimits, frozen: FrozenWeek, late: Mapping[str, Any]) -> str | None:
    """Return what to know about records that came after a freeze, or None if they concern few.

    `late` is what `LateClients.as_json` says. These clients got no e-mail, or a wrong one, so what
    is allowed is what is allowed to fail.
    """
    few = max(FEW, limits.mail_failed_share * frozen.recipients)
    if late["missed"] + late["changed"] <= few:
        return None
    return (
        f"{frozen.week}: {late_line(late)}. That is more than SHARDPOST_MAIL_FAILED_SHARE allows of"
        f" {frozen.recipients} clients: find the producer whose records are late"
        " (`shardpost explain CLIENT`)"
    )


def too_many(
    limits: MailLimits, week: object, documents: Iterable[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Return what to do about each state that too many clients of the week are in, as above.

    `documents` are those of one run or of several, each of other shards, as `status_document`
    makes them; one of a dry run counts nobody.
    """
    runs = list(documents)
    counts = totals(shard for document in runs for shard in document.get("shards", ()))
    causes = causes_in(runs)
    reasons = (limits.why_exceeded(state, week, counts, causes[state]) for state in _FIXES)
    return [reason for reason in reasons if reason]
