"""What a run of now would do to each client, as lists: the plan that sends, without sending."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pyarrow as pa

from shardpost.delta.arrow_schema import schema_of
from shardpost.delta.table import Array, columns
from shardpost.errors import ShardpostError
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.send_plan import MailToSend, NoMail, SendPlan, Step


class DryRunList(StrEnum):
    """The lists of a dry run. Each client is in one of the first four."""

    RECIPIENTS = "recipients"
    SUPPRESSED = "suppressed"
    FAILED = "failed"
    UNCHANGED = "unchanged"  # would stay what it is: got one, held, or open
    NEW = "new"  # gets one this week, and got none in the week compared with
    LEFT = "left"  # the reverse

    @property
    def fields(self) -> tuple[str, ...]:
        """What its lines say of a client: these columns of `LINES`."""
        if self is DryRunList.RECIPIENTS:
            return ("client", "shard", "email", "positions")
        return ("client",) if self in COMPARED else ("client", "shard", "reason")


# The lists in comparison with another week.
COMPARED = (DryRunList.NEW, DryRunList.LEFT)
# What is said of the clients of a list.
MEANS = {
    DryRunList.RECIPIENTS: "would get an e-mail",
    DryRunList.SUPPRESSED: "would be suppressed",
    DryRunList.FAILED: "would fail",
    DryRunList.UNCHANGED: "would stay as they are",
    DryRunList.NEW: "are new",
    DryRunList.LEFT: "have left",
}
# A client in a list; what lines of that list do not say is null.
LINES = (
    *columns("list STRING, client STRING, shard INT, reason STRING, email STRING"),
    ("positions", Array("STRING")),
)
LINES_SCHEMA = schema_of(LINES)


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


def lines_of(
    batch: pa.RecordBatch, plan: SendPlan, before: LedgerIndex | None
) -> Iterator[dict[str, Any]]:
    """Yield the lines of a batch of a shard, as rows of `LINES`, in the order of its rows.

    It has the columns that `SendPlan` takes, and `shard`, `is_member` of this week's audience, and
    `was_member` of the one before, whose ledger is `before`: None if no week is compared with.
    """
    clients = batch.column("client").to_pylist()
    states = plan.ledger_index.states(clients)
    states_before = before.states(clients) if before is not None else [None] * len(clients)
    members = forecasts(plan, batch.filter(batch.column("is_member")))
    for row, state, state_before in zip(batch.to_pylist(), states, states_before, strict=True):
        kind, reason = next(members) if row["is_member"] else (DryRunList.UNCHANGED, None)
        line = {"client": row["client"], "shard": row["shard"]}
        if kind is DryRunList.RECIPIENTS:
            email = row["email_now" if state is DeliveryState.FAILED else "email"]
            positions = [held["position"] for held in row["positions"]]
            yield {"list": kind, **line, "email": email, "positions": positions}
        elif row["is_member"]:
            yield {"list": kind, **line, "reason": reason}
        gets = kind is DryRunList.RECIPIENTS or (kind is DryRunList.UNCHANGED and state in GOT_ONE)
        had = row["was_member"] and state_before not in GOT_NONE
        if before is not None and gets != had:
            yield {"list": DryRunList.NEW if gets else DryRunList.LEFT, **line}
