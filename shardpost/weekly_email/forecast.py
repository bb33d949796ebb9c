"""What a run of now would do to each client: the plan that sends, followed without sending."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.send_plan import MailToSend, NoMail, SendPlan, StaysOpen, Step


class DryRunList(StrEnum):
    """The lists of a dry run. Each client is in one of the first four."""

    RECIPIENTS = "recipients"  # would get an e-mail
    SUPPRESSED = "suppressed"  # would become `suppressed`
    FAILED = "failed"  # would become `failed`
    UNCHANGED = "unchanged"  # would stay what it is: got one, held, or open
    NEW = "new"  # gets one this week, and got none in the week compared with
    LEFT = "left"  # the reverse


@dataclass(frozen=True)
class Forecast:
    """Into which list a client comes; `reason` is why, None for one that would get an e-mail."""

    list: DryRunList
    reason: str | None
    gets_one: bool


def forecasts(plan: SendPlan, batch: pa.RecordBatch) -> Iterator[Forecast]:
    """Yield what becomes of each row of a batch as `SendPlan` takes them, in their order."""
    steps = {_client(step): step for step in plan.steps([batch])}
    clients = batch.column("client").to_pylist()
    for client, state in zip(clients, plan.ledger_index.states(clients), strict=True):
        match steps.get(client):
            case MailToSend():
                yield Forecast(DryRunList.RECIPIENTS, None, gets_one=True)
            case NoMail(entry):
                yield Forecast(DryRunList(str(entry.state)), entry.reason, gets_one=False)
            case StaysOpen(_, reason):
                yield Forecast(DryRunList.UNCHANGED, f"stays open: {reason}", gets_one=False)
            case None:
                resends = plan.ledger_index.resent(client)
                why = why_unchanged(state, resends)
                yield Forecast(DryRunList.UNCHANGED, why, gets_one=has_got_one(state))


def has_got_one(state: DeliveryState | None) -> bool:
    """Tell whether a client got the e-mail of a week, or may have."""
    return state in (DeliveryState.SENT, DeliveryState.SENDING, DeliveryState.UNKNOWN)


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
            return "delivery unknown, also of the mail that was sent again: left to a person"
    return "delivery unknown: held for a person; --on-unknown resend mails it again"


def _client(step: Step) -> str:
    match step:
        case MailToSend(mail):
            return mail.client
        case NoMail(entry):
            return entry.client
        case StaysOpen(client):
            return client
