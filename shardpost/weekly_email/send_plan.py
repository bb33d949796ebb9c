"""What a shard has to do, read as a stream: decisions that need no mail, and mails ready to go."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from shardpost.weekly_email.model.audience import Member, NotMailed, recipient_of
from shardpost.weekly_email.model.holdings import Holdings, of_batch
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, Policy, message_id
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.message import ComposeError, Letterhead, Mail, Recipient, compose

# Clients whose e-mails are made at once.
BATCH = 1000

_ABOUT = ("client", "name", "email", "has_contact", "subscribed")


@dataclass(frozen=True)
class ToSend:
    """A mail that is to go, and what the ledger says of its client before."""

    mail: Mail
    before: DeliveryState | None


@dataclass(frozen=True)
class Decided:
    """A client that gets no mail, as the ledger is to say, and what it says before."""

    entry: LedgerEntry
    before: DeliveryState | None


@dataclass
class SendPlan:
    """The plan of one shard; reads the audience once, in its order, one batch at a time.

    Batches have the columns client, name, email, has_contact, subscribed and positions; each client
    once.
    """

    book: LedgerIndex
    policy: Policy
    head: Letterhead
    clock: Callable[[], datetime]
    open: int = 0

    def steps(self, batches: Iterable[pa.RecordBatch]) -> Iterator[ToSend | Decided]:
        """Yield what is to be done.

        Counts in `open` the clients that the ledger does not know yet.
        """
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH):
                yield from self._of(batch.slice(start, BATCH))

    def count_rest(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Read what is left of the audience only to count who is open."""
        for batch in batches:
            self._states(batch)

    def _states(self, batch: pa.RecordBatch) -> list[DeliveryState | None]:
        states = self.book.states(batch.column("client").to_pylist())
        self.open += states.count(None)
        return states

    def _of(self, batch: pa.RecordBatch) -> Iterator[ToSend | Decided]:
        states = self._states(batch)
        chosen = [i for i, state in enumerate(states) if self.policy.is_open(state)]
        if not chosen:
            return
        rows = batch.take(pa.array(chosen))
        members = [Member(**row) for row in rows.select(_ABOUT).to_pylist()]
        judged = [recipient_of(member) for member in members]
        mailed = [i for i, to in enumerate(judged) if isinstance(to, Recipient)]
        holdings = iter(of_batch(rows.column("positions").take(pa.array(mailed, pa.int64()))))
        for i, member, to in zip(chosen, members, judged, strict=True):
            if isinstance(to, Recipient):
                yield self._composed(to, next(holdings), states[i])
            else:
                yield self._decided(member.client, to, states[i])

    def _composed(
        self, to: Recipient, holdings: Holdings, before: DeliveryState | None
    ) -> ToSend | Decided:
        try:
            return ToSend(compose(self.head, to, holdings, self.clock()), before)
        except ComposeError as error:
            return self._decided(to.client, NotMailed(DeliveryState.FAILED, str(error)), before)

    def _decided(self, client: str, why: NotMailed, before: DeliveryState | None) -> Decided:
        identity = message_id(self.head.week, client, self.head.domain)
        return Decided(LedgerEntry(client, why.state, identity, why.reason), before)
