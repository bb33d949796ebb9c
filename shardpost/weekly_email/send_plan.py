"""What a shard has to do, as a stream: decisions that need no mail, and mails that are ready."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from shardpost.weekly_email.model.audience import Member, NotMailed, recipient_of
from shardpost.weekly_email.model.email_context import EmailContext
from shardpost.weekly_email.model.holdings import Holdings, of_batch
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, ResendPolicy, message_id
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.message import ComposeError, Mail, Recipient, compose

# Clients whose e-mails are composed at once.
BATCH = 1000

_MEMBER_COLUMNS = ("client", "name", "email", "has_contact", "subscribed")


@dataclass(frozen=True)
class MailToSend:
    """A mail to be sent, and the client's state in the ledger before it."""

    mail: Mail
    before: DeliveryState | None


@dataclass(frozen=True)
class NoMail:
    """The ledger entry of a client that gets no mail, and its state before."""

    entry: LedgerEntry
    before: DeliveryState | None


@dataclass
class SendPlan:
    """The plan of one shard; reads the audience once, in its order, one batch at a time.

    Batches have the columns client, name, email, has_contact, subscribed and positions; each client
    once. `open_clients` counts those that the ledger did not know when they were read.
    """

    ledger_index: LedgerIndex
    resend: ResendPolicy
    context: EmailContext
    clock: Callable[[], datetime]
    open_clients: int = 0

    def steps(self, batches: Iterable[pa.RecordBatch]) -> Iterator[MailToSend | NoMail]:
        """Yield what is to be done, in the order of the audience."""
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH):
                yield from self._steps_of(batch.slice(start, BATCH))

    def count_rest(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Read what is left of the audience only to count its open clients."""
        for batch in batches:
            self._states(batch)

    def _states(self, batch: pa.RecordBatch) -> list[DeliveryState | None]:
        states = self.ledger_index.states(batch.column("client").to_pylist())
        self.open_clients += states.count(None)
        return states

    def _steps_of(self, batch: pa.RecordBatch) -> Iterator[MailToSend | NoMail]:
        states = self._states(batch)
        chosen = [i for i, state in enumerate(states) if self.resend.selects(state)]
        if not chosen:
            return
        rows = batch.take(pa.array(chosen))
        members = [Member(**row) for row in rows.select(_MEMBER_COLUMNS).to_pylist()]
        recipients = [recipient_of(member) for member in members]
        mailed = [i for i, to in enumerate(recipients) if isinstance(to, Recipient)]
        holdings = iter(of_batch(rows.column("positions").take(pa.array(mailed, pa.int64()))))
        for i, member, to in zip(chosen, members, recipients, strict=True):
            if isinstance(to, Recipient):
                yield self._composed(to, next(holdings), states[i])
            else:
                yield self._not_mailed(member.client, to, states[i])

    def _composed(
        self, to: Recipient, holdings: Holdings, before: DeliveryState | None
    ) -> MailToSend | NoMail:
        try:
            return MailToSend(compose(self.context, to, holdings, self.clock()), before)
        except ComposeError as error:
            why = NotMailed(DeliveryState.FAILED, str(error))
            return self._not_mailed(to.client, why, before)

    def _not_mailed(self, client: str, why: NotMailed, before: DeliveryState | None) -> NoMail:
        identity = message_id(self.context.week, client, self.context.domain)
        return NoMail(LedgerEntry(client, why.state, identity, why.reason), before)
