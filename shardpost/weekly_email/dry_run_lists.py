"""What a run of now would do to each client, as lists: the plan that sends, without sending.

The lines of a shard's lists are JSON. A person gets them as text, which is read from their files
line by line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from shardpost.delta.snapshot import UnknownExchanges
from shardpost.errors import ShardpostError, one_line, shown
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.send_plan import MailToSend, NoMail, SendPlan, Step


class DryRunList(StrEnum):
    """The lists of a dry run. Each client is in one of the first four."""

    RECIPIENTS = "recipients"  # would get an e-mail
    SUPPRESSED = "suppressed"  # would become `suppressed`
    FAILED = "failed"  # would become `failed`
    UNCHANGED = "unchanged"  # would stay what it is: got one, held, or open
    NEW = "new"  # gets one this week, and got none in the week compared with
    LEFT = "left"  # the reverse


def forecasts(plan: SendPlan, batch: pa.RecordBatch) -> Iterator[tuple[DryRunList, str | None]]:
    """Yield the list of each row of a batch, and why: None for one that would get an e-mail.

    ShardpostError for what would stop the run.
    """
    steps = {_client(step): step for step in plan.steps([batch])}
    if plan.stop_reason:
        raise ShardpostError(plan.stop_reason)
    clients = batch.column("client").to_pylist()
    for client, state in zip(clients, plan.ledger_index.states(clients), strict=True):
        match steps.get(client):
            case MailToSend():
                yield DryRunList.RECIPIENTS, None
            case NoMail(entry) if entry.state is None:
                yield DryRunList.UNCHANGED, f"not mailed yet: {entry.reason}"
            case NoMail(entry):
                yield DryRunList(str(entry.state)), entry.reason
            case None:
                why = why_unchanged(state, plan.ledger_index.resent(client))
                yield DryRunList.UNCHANGED, why


def why_unchanged(state: DeliveryState | None, resends: int) -> str:
    """Return why a run leaves a client alone that is in that state."""
    match state:
        case DeliveryState.SENT:
            return "sent already"
        case DeliveryState.FAILED:
            return "failed in an earlier run; --again FAILED mails it"
        case DeliveryState.SUPPRESSED:
            return "suppressed in an earlier run; --again SUPPRESSED mails it if it is subscribed"
        case _ if resends:
            return "delivery unknown, even after a resend: left to a person"
    return "delivery unknown: held for a person; --on-unknown resend mails it again"


def _client(step: Step) -> str:
    return step.mail.client if isinstance(step, MailToSend) else step.entry.client


# States in which a client has not got the e-mail of a week, and in which it has, or may have.
GOT_NONE = (DeliveryState.FAILED, DeliveryState.SUPPRESSED)
GOT_ONE = (DeliveryState.SENT, DeliveryState.SENDING, DeliveryState.UNKNOWN)


class ListedLine(NamedTuple):
    """One client of one list; the text is ASCII: it goes into logs."""

    list: DryRunList
    text: str


@dataclass(frozen=True)
class ShardLines:
    """Makes the lines of a shard: by what a run would do, and by the ledger of the week before.

    `before` is None if no week is compared with.
    """

    plan: SendPlan
    before: LedgerIndex | None

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[ListedLine]:
        """Yield the lines of a batch in the order of its rows.

        It has the columns that `SendPlan` takes, and `shard`, `is_member` of this week's audience,
        and `was_member` of the one before.
        """
        states = self.plan.ledger_index.states(batch.column("client").to_pylist())
        members = forecasts(self.plan, batch.filter(batch.column("is_member")))
        for row, state, had in zip(batch.to_pylist(), states, self._had(batch), strict=True):
            kind, reason = next(members) if row["is_member"] else (DryRunList.UNCHANGED, None)
            if row["is_member"]:
                yield ListedLine(kind, json.dumps(_member(row, kind, reason, state)))
            is_left_alone = kind is DryRunList.UNCHANGED
            gets = state in GOT_ONE if is_left_alone else kind is DryRunList.RECIPIENTS
            if self.before is not None and gets != had:
                changed = DryRunList.NEW if gets else DryRunList.LEFT
                yield ListedLine(changed, json.dumps(row["client"]))

    def _had(self, batch: pa.RecordBatch) -> list[bool]:
        """Tell of each row whether it got the e-mail of the week before, or is to get it yet."""
        members: list[bool] = batch.column("was_member").to_pylist()
        if self.before is None:
            return members
        states = self.before.states(batch.column("client").to_pylist())
        return [
            was_member and state not in GOT_NONE
            for was_member, state in zip(members, states, strict=True)
        ]


def _member(
    row: dict[str, Any], kind: DryRunList, reason: str | None, state: DeliveryState | None
) -> dict[str, Any]:
    if kind is not DryRunList.RECIPIENTS:
        return {"client": row["client"], "shard": row["shard"], "reason": reason}
    return {
        "client": row["client"],
        "email": row["email_now" if state is DeliveryState.FAILED else "email"],
        "shard": row["shard"],
        "positions": [held["position"] for held in row["positions"]],
    }


# What becomes of the clients of the lists that each client is in one of.
_BECOMES = {
    DryRunList.RECIPIENTS: "would get an e-mail",
    DryRunList.SUPPRESSED: "would be suppressed",
    DryRunList.FAILED: "would fail",
    DryRunList.UNCHANGED: "would stay as they are",
}


def text_lines(result: dict[str, Any], folder: Path, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a dry run's text; `most` is how many clients a list names, None for all.

    `result` is the dry run's, and `folder` has its lists.
    """
    week, counts = result["week"], result["counts"]
    for kind in DryRunList:
        if not counts[kind]:
            continue
        if kind is not DryRunList.RECIPIENTS:
            compared = f"{kind}, compared with {result['compared_with']}"
            yield f"{_BECOMES.get(kind, compared)}:\n"
        with (folder / kind).open() as lines:
            for line in islice(lines, most):
                yield f"{one_line(_text(json.loads(line)))}\n"
        if most is not None and counts[kind] > most:
            more = counts[kind] - most
            yield f"… and {more} more: `shardpost email --week {week} --dry-run` lists them\n"
    yield f"{summary(result)}; nothing was sent\n"


def summary(result: dict[str, Any]) -> str:
    """Return in words how many clients are in which list."""
    counts = result["counts"]
    parts = [
        f"{counts[kind]} {what}"
        for kind, what in _BECOMES.items()
        if counts[kind] or kind is DryRunList.RECIPIENTS
    ]
    if result["compared_with"]:
        new, left = counts[DryRunList.NEW], counts[DryRunList.LEFT]
        parts.append(f"{new} new and {left} left since {result['compared_with']}")
    if unknown := result["unknown_exchanges"]:
        parts.append(str(UnknownExchanges.of(unknown)))
    return ", ".join(parts)


def _text(line: Any) -> str:
    match line:
        case str():
            return shown(line)
        case {"positions": positions}:
            ids = ", ".join(map(shown, positions))
            return f"{shown(line['client'])} <{line['email']}>, shard {line['shard']}: {ids}"
        case _:
            return f"{shown(line['client'])}, shard {line['shard']}: {line['reason']}"
