"""One client's mail of a week, as it was sent or would be, and as a test mail.

A mail that was handed to the mail server is composed again from its ledger record, and shown if it
is identical to the last byte; else its content is unknown. Any other is what a run would send now:
from the frozen audience, or else as of the newest snapshot. Uses no JVM and writes nothing: a test
goes to the mail server without a ledger record.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.installation import Installation
from shardpost.values.addresses import Address, Mailbox, UnusableAddress, check_address
from shardpost.weekly_email import own_templates
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.email_context import EmailContext, Sender
from shardpost.weekly_email.model.ledger import HANDED_OVER, DeliveryState, Written
from shardpost.weekly_email.model.message import Draft, draft
from shardpost.weekly_email.model.recipient import Member, Recipient, recipient_of
from shardpost.weekly_email.model.retry import Accepted, NoReply
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import MailLook
from shardpost.weekly_email.smtp import SmtpSession
from shardpost.weekly_email.smtp_server import Phase, SenderSettings, SmtpServer

if TYPE_CHECKING:
    from shardpost.holders.spark.held_positions import Contact

TEST_SECONDS = 30.0
NOWHERE = Address("nobody@invalid", needs_utf8=False)


@dataclass(frozen=True)
class MailPreview:
    """One mail as people read it, with decoded headers in their order.

    `is_frozen`: it comes from the frozen audience. `snapshot` is its snapshot and `as_of` the time
    of its positions. `language` is that of its numbers and dates (None: as in records). `test`
    marks it and writes it to another address. `remark` is why no run would send it now, or None.
    `look_since`: it is shown as sent, with the sender and templates of its shard since then; None:
    as a run would send it now.
    """

    client: str
    week: str
    subject: str
    headers: dict[str, str]
    text: str
    html: str
    is_frozen: bool
    snapshot: int
    as_of: datetime
    language: str | None
    test: Callable[[Address, datetime], Draft] = field(repr=False)
    remark: str | None = None
    look_since: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the document of `email preview --json`."""
        return {name: value for name, value in vars(self).items() if name != "test"}


def preview(
    installation: Installation,
    client: str,
    week: IsoWeek,
    rows: Sequence[Mapping[str, Any]] = (),
    *,
    now: datetime,
) -> MailPreview:
    """Return a client's mail of a week as it was sent or would be, given its ledger rows.

    Raises ShardpostError for a client that gets no mail (not in the audience, or without holdings)
    and for a sent mail whose content is unknown, UsageError for a wrong template. A client that is
    not subscribed, or has no usable address, gets its mail with a remark.
    """
    state = rows[-1]["state"] if rows else None
    settings, tables = installation.values(SenderSettings), installation.tables
    sources = _Sources(tables, client, week, now, settings.shown())
    if state in HANDED_OVER:
        try:
            looks = own_templates.looks_of_shard(tables, week, rows[-1]["shard"])
            return _as_sent(sources, rows[-1], looks, settings.unsubscribe_secret)
        except ShardpostError as error:
            raise ShardpostError(
                f"week {week}: the ledger has the e-mail of {shown(client)} as `{state}` since"
                f" {rows[-1]['timestamp']}, but its content is unknown: {error}"
            ) from None
    found = sources.of_now()
    member = found.member.as_mailed(DeliveryState.FAILED if state == "failed" else None)
    to, remark = recipient_of(member), None
    if not isinstance(to, Recipient):
        remark = f"no run sends it: {to.reason}"
        to = replace(found, member=member).recipient()
    templates = own_templates.templates_of(installation.values(own_templates.TemplateSettings))
    found = replace(found, context=replace(found.context, templates=templates))
    return replace(found.preview(found.draft(to, now)), remark=remark)


def _as_sent(
    sources: "_Sources", row: Mapping[str, Any], looks: Iterable[MailLook], secrets: str | None
) -> MailPreview:
    if (written := Written.from_json(row["written"])) is None:
        raise ShardpostError("its ledger record does not say what it was written from")
    found = sources.of_written(written)
    to = found.recipient()
    for look in looks:
        for sender in look.senders(secrets):
            context = replace(found.context, sender=sender, templates=look.templates)
            then = replace(found, context=context)
            made = then.draft(to, written.date)
            if made.mail().digest == written.digest:
                return replace(then.preview(made), look_since=look.at)
    raise ShardpostError("the mail composed from its record differs from the one sent")


class _HastyServer(SmtpServer):
    """The mail server for a test: a person waits, and nothing depends on the delivery."""

    def timeout(self, phase: Phase) -> float:
        return min(super().timeout(phase), TEST_SECONDS)


def send_test(
    installation: Installation, mail: MailPreview, to: str, now: datetime
) -> dict[str, str]:
    """Send the mail that is shown to another address, marked as a test, outside the ledger.

    It has another Message-ID and no unsubscribe link of the client. Return the document of `email
    test --json`. Raises ShardpostError if the mail server does not accept it at once, UsageError
    for an invalid address.
    """
    address = check_address(to)
    if isinstance(address, UnusableAddress):
        raise UsageError(f"address: {address.reason}")
    server = replace(installation.values(_HastyServer), mail_attempts=1)
    # Refuses settings that must not be used with a real server.
    installation.values(SenderSettings).sender(server)
    made = mail.test(address, now)
    with closing(SmtpSession(server)) as session:
        outcome = session.send(made.mail())
    match outcome:
        case Accepted():
            sent = {"to": address.text, "subject": _text(made.headers["Subject"])}
            return {"client": mail.client, "week": mail.week, **sent, "message_id": made.message_id}
        case NoReply(reason):
            raise ShardpostError(f"the test may have been sent or not: {reason}")
    raise ShardpostError(f"the test was not sent: {outcome.reason}")


@dataclass(frozen=True)
class _Source:
    """The source of one mail, from a frozen audience or not."""

    member: Member
    positions: list[dict[str, str | None]]
    context: EmailContext
    is_frozen: bool

    def recipient(self) -> Recipient:
        """Return the client as the recipient, even with an unusable address."""
        member, address = self.member, check_address(self.member.email)
        if isinstance(address, UnusableAddress):
            address = NOWHERE
        return Recipient(member.client, member.name or "", address, member.language)

    def draft(self, to: Recipient, now: datetime, *, is_test: bool = False) -> Draft:
        return draft(self.context, to, self.positions, now, is_test=is_test)

    def preview(self, made: Draft) -> MailPreview:
        context = self.context
        headers = {name: _text(value) for name, value in made.headers.items()}
        if made.to.address == NOWHERE:
            del headers["To"]
        return MailPreview(
            *(made.to.client, str(context.week), headers["Subject"], headers, made.text, made.html),
            is_frozen=self.is_frozen,
            snapshot=context.snapshot,
            as_of=context.as_of,
            language=context.templates.language_for(made.to.language),
            test=lambda to, at: self.draft(replace(made.to, address=to), at, is_test=True),
        )


@dataclass(frozen=True)
class _Sources:
    """Finds the source of one client's mail of a week."""

    tables: Tables
    client: str
    week: IsoWeek
    now: datetime
    sender: Sender

    def of_now(self) -> _Source:
        if frozen := FrozenWeeks(self.tables).find(self.week):
            return self._frozen(frozen)
        snapshot = snapshots.current(self.tables)
        return self._held(snapshot, self.week.held_at(self.now, snapshot.looked_at))

    def of_written(self, written: Written) -> _Source:
        """Return the source of a sent mail, if it is still kept."""
        frozen = FrozenWeeks(self.tables).find(self.week)
        if frozen and (frozen.snapshot, frozen.as_of) == (written.snapshot, written.as_of):
            found = self._frozen(frozen)
        else:
            found = self._held(self._kept(written.snapshot), written.as_of)
        if written.contacts == written.snapshot:
            return found
        contact = self._contact(self._kept(written.contacts))
        name, email = (contact.name, contact.email) if contact else (None, None)
        return replace(found, member=replace(found.member, name=name, email=email))

    def _frozen(self, frozen: FrozenWeek) -> _Source:
        frozen.require_audience()
        row = FrozenWeeks(self.tables).member(frozen, self.client)
        if row is None:
            raise ShardpostError(
                f"week {self.week}: {shown(self.client)} is not in its audience, and gets no"
                " e-mail: `shardpost explain` shows which records added or removed its positions"
            )
        contact = self._contact(snapshots.current(self.tables))
        member = Member(
            *(self.client, row["name"], row["email"]),
            has_contact=row["has_contact"],
            subscribed=contact and contact.subscribed,
            language=row.get("language"),
            name_now=contact and contact.name,
            email_now=contact and contact.email,
        )
        common = (self.week, frozen.as_of, frozen.rule.country, self.sender)
        context = EmailContext(*common, snapshot=frozen.snapshot)
        return _Source(member, row["positions"], context, is_frozen=True)

    def _held(self, snapshot: Snapshot, as_of: datetime) -> _Source:
        from shardpost.holders.spark.held_positions import holding_of  # imports PySpark

        positions, contact = holding_of(self.tables, snapshot, as_of, self.client)
        if not positions:
            raise ShardpostError(
                f"week {self.week}: as of {as_of:%Y-%m-%d %H:%M} UTC {shown(self.client)} holds no"
                f" {snapshot.rule.country} stock at snapshot {snapshot.number}, and would get no"
                " e-mail"
            )
        member = Member(self.client, None, None, has_contact=False, subscribed=None)
        if contact is not None:
            member = replace(member, has_contact=True, **contact._asdict())
        common = (self.week, as_of, snapshot.rule.country, self.sender)
        context = EmailContext(*common, snapshot=snapshot.number)
        return _Source(member, positions, context, is_frozen=False)

    def _contact(self, snapshot: Snapshot) -> "Contact | None":
        from shardpost.holders.spark.held_positions import contact_of  # imports PySpark

        return contact_of(self.tables, snapshot, self.client)

    def _kept(self, number: int) -> Snapshot:
        """Return the first kept snapshot from that one on, which may have the same contents."""
        kept = snapshots.list_kept(self.tables, now=self.now, pinned=())
        later = (one for one in kept if one.number >= number)
        return next(later, None) or snapshots.current(self.tables)


def _text(value: str | tuple[Mailbox, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value))
