"""The work of a shard as a stream: decisions without a mail, and mails ready to send."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost.delta import snapshots
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError, first_line, shown
from shardpost.holders.spark.held_positions import unsubscribed_since
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.model.email_context import ComposeError, EmailContext
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, Written
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.mail_rendering import TemplateError
from shardpost.weekly_email.model.message import Mail, Positions, draft, message_id
from shardpost.weekly_email.model.recipient import (
    UNSUBSCRIBED,
    Member,
    NotMailed,
    Recipient,
    recipient_of,
)

BATCH = 1000  # clients whose e-mails are composed at once

_MEMBER_COLUMNS = tuple(column.name for column in fields(Member))
INTERVAL_SECONDS = 60.0  # between checks for unsubscriptions
UNREADABLE = (ShardpostError, OSError, DeltaError, ArrowException)  # of a table


@dataclass(frozen=True)
class MailToSend:
    """A mail to be sent, the client's ledger state before it, its resends so far, its source."""

    mail: Mail
    before: DeliveryState | None
    resends: int = 0
    written: Written | None = None

    def entry(self, state: DeliveryState, reason: str | None = None) -> LedgerEntry:
        """Return the ledger entry during or after sending this mail."""
        resends = self.resends + (self.before is DeliveryState.UNKNOWN)
        entry = LedgerEntry(self.mail.client, state, self.mail.message_id, reason, resends)
        return replace(entry, written=self.written)

    def entry_before(self, reason: str) -> LedgerEntry:
        """Return the previous ledger entry, for a mail that was certainly not sent."""
        mail = self.mail
        return LedgerEntry(mail.client, self.before, mail.message_id, reason, self.resends)


@dataclass(frozen=True)
class NoMail:
    """The ledger entry of a client that gets no mail, and its state before.

    An entry without a state only explains why the client remains open: nothing is written.
    """

    entry: LedgerEntry
    before: DeliveryState | None


Step = MailToSend | NoMail


class SubscriptionsUnknownError(ShardpostError):
    """Subscriptions cannot be read from the tables, so mailing has to stop."""


@dataclass
class Unsubscribed:
    """Checks whether a client has unsubscribed since the run's first snapshot.

    The answer is from the newest snapshot as of at most `interval` seconds ago. The driver passes
    it to Spark tasks unused, so each shard's task has, and refreshes, its own copy.
    """

    tables: Tables
    since: int
    interval: float = field(default_factory=lambda: INTERVAL_SECONDS)
    _clients: frozenset[str] = field(default=frozenset(), init=False)
    _asked_at: float | None = field(default=None, init=False)

    def __call__(self, client: str) -> bool:
        """Return the answer, or raise SubscriptionsUnknownError."""
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= self.interval:
            try:
                newest = snapshots.current(self.tables)
                self._clients = unsubscribed_since(self.tables, newest, self.since)
            except UNREADABLE as error:
                raise SubscriptionsUnknownError(
                    "cannot read from the tables which clients have unsubscribed"
                    f" ({first_line(error)}); mailing stopped, and the remaining clients are not"
                    " mailed yet: run again"
                ) from None
            self._asked_at = now
        return client in self._clients


@dataclass
class SendPlan:
    """The plan of one shard; reads the audience once, in order, one batch at a time.

    Batches have the fields of `Member` and `positions` as columns, and each client once.
    `has_unsubscribed` is called for each client right before its mail; if it fails, or a template
    is wrong, the steps end with a `stop_reason`. In an early week an open client without a usable
    contact remains open, since the contact at the coming freeze counts.
    """

    ledger_index: LedgerIndex
    resend: ResendPolicy
    context: EmailContext
    clock: Callable[[], datetime]
    has_unsubscribed: Callable[[str], bool]
    stop_reason: str | None = None

    def steps(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Step]:
        """Yield the steps in the order of the audience, resends last.

        If the mail server still fails on a resend, everybody else was mailed before.
        """
        resent: list[pa.RecordBatch] = []
        try:
            for batch in batches:
                for start in range(0, batch.num_rows, BATCH):
                    part = batch.slice(start, BATCH)
                    clients = part.column("client").to_pylist()
                    states = self.ledger_index.states(clients)
                    chosen = self._chosen(clients, states)
                    unknown = [i for i in chosen if states[i] is DeliveryState.UNKNOWN]
                    if unknown:
                        resent.append(part.take(pa.array(unknown)))
                    fresh = [i for i in chosen if states[i] is not DeliveryState.UNKNOWN]
                    yield from self._steps_of(part, fresh, states)
            for part in resent:
                states = [DeliveryState.UNKNOWN] * len(part)
                yield from self._steps_of(part, range(len(part)), states)
        except (SubscriptionsUnknownError, TemplateError) as error:
            self.stop_reason = str(error)

    def _chosen(self, clients: list[str], states: Sequence[DeliveryState | None]) -> list[int]:
        return [
            i
            for i, (client, state) in enumerate(zip(clients, states, strict=True))
            if self.resend.selects(state, self.ledger_index.resent(client))
        ]

    def _steps_of(
        self, batch: pa.RecordBatch, chosen: Sequence[int], states: Sequence[DeliveryState | None]
    ) -> Iterator[Step]:
        rows = batch.take(pa.array(chosen, pa.int64())).to_pylist()
        for i, row in zip(chosen, rows, strict=True):
            yield self._step(row, states[i])

    def _step(self, row: Mapping[str, Any], before: DeliveryState | None) -> Step:
        member = Member(**{name: row[name] for name in _MEMBER_COLUMNS}).as_mailed(before)
        # In an early week, an open client without a contact remains open.
        stays_open = before is None and self.context.is_early
        state = None if stays_open else DeliveryState.FAILED
        match recipient_of(member, without_contact=state):
            case NotMailed() as why:
                return self._not_mailed(member.client, why, before)
            case to if self.has_unsubscribed(to.client):
                return self._not_mailed(to.client, UNSUBSCRIBED, before)
            case to:
                return self._composed(to, row["positions"], before)

    def _composed(self, to: Recipient, positions: Positions, before: DeliveryState | None) -> Step:
        context, date = self.context, self.clock()
        contacts = context.newest if before is DeliveryState.FAILED else context.snapshot
        try:
            mail = draft(context, to, positions, date).mail()
            written = Written(context.snapshot, context.as_of, contacts, date, mail.digest)
            return MailToSend(mail, before, self.ledger_index.resent(to.client), written)
        except ComposeError as error:
            why = NotMailed(DeliveryState.FAILED, str(error))
            return self._not_mailed(to.client, why, before)
        except TemplateError as error:  # not caused by a client, so no client has failed
            raise TemplateError(
                f"{error} (with the values of client {shown(to.client)}); mailing stopped, and"
                " the remaining clients are not mailed yet: fix the template and run again"
            ) from None

    def _not_mailed(self, client: str, why: NotMailed, before: DeliveryState | None) -> NoMail:
        identity = message_id(self.context, client)
        resends = self.ledger_index.resent(client)
        return NoMail(LedgerEntry(client, why.state, identity, why.reason, resends), before)
