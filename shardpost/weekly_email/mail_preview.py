"""One client's mail of a week as it was or would be written; and the same, sent as a test.

A mail that was handed to the mail server is written anew from what the ledger has on record of it,
and shown if it is the same to the last byte; else what was in it is not known. Any other is what a
run of now would send: of a frozen week that of its audience, of another as of the newest snapshot.
No JVM, and nothing is written: a test goes to the mail server and leaves nothing in the ledger.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.installation import Installation
from shardpost.settings.addresses import Address, Mailbox, UnusableAddress, check_address
from shardpost.weekly_email import own_templates
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.email_context import (
    EmailContext,
    Member,
    Recipient,
    Sender,
    recipient_of,
)
from shardpost.weekly_email.model.holdings import Holdings, holdings_of_batch
from shardpost.weekly_email.model.ledger import DeliveryState, Written
from shardpost.weekly_email.model.mail_rendering import Rendered, rendered
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.message import Draft, Rendering, draft
from shardpost.weekly_email.model.retry import Accepted, NoReply
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import MailLook
from shardpost.weekly_email.own_templates import TemplateSettings, read, with_subject
from shardpost.weekly_email.smtp import SmtpSession
from shardpost.weekly_email.smtp_server import Phase, SenderSettings, SmtpServer

# Somebody waits for a test.
TEST_SECONDS = 30.0
NOWHERE = Address("nobody@invalid", needs_utf8=False)


@dataclass(frozen=True)
class MailPreview:
    """One mail as people read it: its headers are decoded, in their order.

    `is_frozen`: it is of the audience that was frozen. `snapshot` is the one that it is of, and
    `as_of` when its positions were held. `language` is that of its numbers and dates, None for
    those of records. `test` writes it to another address, marked. `remark` is why no run would send
    it now, None if one would. `look_since`: it is as it was sent, by the sender and the templates
    that its shard was mailed by from then on; None: it is what a run of now would send.
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
        since = self.look_since and self.look_since.isoformat()
        found = {**vars(self), "as_of": self.as_of.isoformat(), "look_since": since}
        del found["test"]
        return found


@dataclass(frozen=True)
class SentTest:
    """A test that the mail server has accepted."""

    client: str
    week: str
    to: str
    subject: str
    message_id: str

    def as_json(self) -> dict[str, str]:
        """Return the document of `email test --json`."""
        return dict(vars(self))


# States of a client whose mail was handed to the mail server.
HANDED_OVER = ("sending", "sent", "unknown")


def preview(
    installation: Installation,
    client: str,
    week: IsoWeek,
    rows: Sequence[Mapping[str, Any]] = (),
    *,
    now: datetime,
    subject: str | None = None,
    render: Callable[..., Rendered] = rendered,
) -> MailPreview:
    """Return a client's mail of a week, by the ledger's rows of it: as it was sent, or would be.

    `subject` is a template that is tried in the place of the subject's, in the mail that would be
    sent; `render` is what renders, perhaps within bounds.
    ShardpostError for a client that gets none: it is not in the audience, or holds nothing; and for
    a mail that was sent if what was in it is not known. One that is not subscribed, or has no
    usable address, has its mail with a remark. UsageError for a template that is wrong.
    """
    state = rows[-1]["state"] if rows else None
    settings, tables = installation.values(SenderSettings), installation.tables
    if subject is None and state in HANDED_OVER:
        try:
            written = _written(rows[-1])
            found = _find_written(tables, client, week, written, now)
            looks = own_templates.looks_of_shard(tables, week, rows[-1]["shard"])
            return _as_sent(looks, settings.unsubscribe_secret, found, written, render)
        except ShardpostError as error:
            raise ShardpostError(
                f"week {week}: the e-mail of {shown(client)} is `{state}`, by the ledger at"
                f" {rows[-1]['timestamp']}, and what was in it is not known: {error}"
            ) from None
    found = _find(tables, client, week, now)
    member = found.member.as_mailed(DeliveryState.FAILED if state == "failed" else None)
    to, remark = recipient_of(member), None
    if not isinstance(to, Recipient):
        remark = f"no run sends it: {to.reason}"
        to = replace(found, member=member).recipient(_address_of(member.email))
    templates = read(installation.values(TemplateSettings))
    if subject is not None:
        templates = with_subject(templates, subject)
    sender, tried = settings.shown(), partial(render, is_tried=True)
    made = found.draft(sender, templates, to, now, render=tried)
    return replace(found.preview(made, sender, templates, render), remark=remark)


def send_test(installation: Installation, mail: MailPreview, to: str, now: datetime) -> SentTest:
    """Send the mail that is shown to another address, marked as a test, outside the ledger.

    It has another Message-ID, and unsubscribes nobody. ShardpostError if the mail server does not
    take it; UsageError for an address that is none.
    """
    address = check_address(to)
    if isinstance(address, UnusableAddress):
        raise UsageError(f"address: {address.reason}")
    server = installation.values(SmtpServer)
    # Refuses settings by which a real server is sent nothing.
    installation.values(SenderSettings).sender(server)
    made = mail.test(address, now)
    _send(server, made)
    subject = _text(made.headers["Subject"])
    return SentTest(mail.client, mail.week, address.text, subject, made.message_id)


@dataclass(frozen=True)
class _Found:
    """A client's part of a week, as of now, or frozen for so many shards."""

    member: Member
    positions: list[dict[str, str | None]]
    week: IsoWeek
    shards: int | None
    snapshot: int
    as_of: datetime
    country: str

    def preview(
        self, made: Draft, sender: Sender, templates: MailTemplates, render: Rendering
    ) -> MailPreview:
        """Return a mail of it as people read it."""

        def test(address: Address, now: datetime) -> Draft:
            to = replace(made.to, address=address)
            return self.draft(sender, templates, to, now, is_test=True, render=render)

        headers = {name: _text(value) for name, value in made.headers.items()}
        if made.to.address == NOWHERE:
            del headers["To"]
        return MailPreview(
            *(made.to.client, str(self.week), headers["Subject"], headers, made.text, made.html),
            is_frozen=self.shards is not None,
            snapshot=self.snapshot,
            as_of=self.as_of,
            language=templates.language_for(made.to.language),
            test=test,
        )

    def recipient(self, address: Address) -> Recipient:
        """Return the client as the recipient at an address."""
        member = self.member
        return Recipient(member.client, member.name or "", address, member.language)

    def draft(
        self,
        sender: Sender,
        templates: MailTemplates,
        to: Recipient,
        now: datetime,
        *,
        is_test: bool = False,
        render: Rendering,
    ) -> Draft:
        """Write the mail."""
        context = EmailContext(self.week, self.as_of, self.country, sender, templates)
        holdings = self._holdings(templates.language_for(to.language), templates.most_rows)
        return draft(context, to, holdings, now, is_test=is_test, render=render)

    def _holdings(self, language: str | None, most_rows: int) -> Holdings:
        names = ("position", "ticker", "amount", "exchange")
        type_ = pa.list_(pa.struct([(name, pa.string()) for name in names]))
        return holdings_of_batch(pa.array([self.positions], type_), [language], most_rows)[0]


def _written(row: Mapping[str, Any]) -> Written:
    if (written := Written.from_json(row["written"])) is None:
        raise ShardpostError("its ledger record does not say from what it was written")
    return written


def _as_sent(
    looks: Iterable[MailLook],
    secrets: str | None,
    found: _Found,
    written: Written,
    render: Rendering,
) -> MailPreview:
    """Return a mail as it was handed to the mail server; ShardpostError if that is not known."""
    to = found.recipient(_address_of(found.member.email))
    for look in looks:
        for sender in look.senders(secrets):
            made = found.draft(sender, look.templates, to, written.date, render=render)
            if made.mail().digest == written.digest:
                shown_mail = found.preview(made, sender, look.templates, render)
                return replace(shown_mail, look_since=look.at)
    raise ShardpostError("it differs from what is made of what is on record of it")


def _find(tables: Tables, client: str, week: IsoWeek, now: datetime) -> _Found:
    """Return from what a run of now would write the mail."""
    frozen = FrozenWeeks(tables).find(week)
    if frozen is not None:
        return _find_frozen(tables, client, week, frozen)
    snapshot = snapshots.current(tables)
    return _find_held(tables, client, week, snapshot, week.held_at(now, snapshot.looked_at))


def _find_frozen(tables: Tables, client: str, week: IsoWeek, frozen: FrozenWeek) -> _Found:
    from shardpost.holders.spark.held_positions import contact_of  # imports PySpark

    frozen.require_audience()
    row = FrozenWeeks(tables).member(frozen, client)
    if row is None:
        raise ShardpostError(
            f"week {week}: {shown(client)} is not in its audience, and gets no e-mail:"
            f" `shardpost explain` says which records gave and took its positions"
        )
    contact = contact_of(tables, snapshots.current(tables), client)
    member = Member(
        *(client, row["name"], row["email"]),
        has_contact=row["has_contact"],
        subscribed=contact and contact.subscribed,
        language=row.get("language"),
        name_now=contact and contact.name,
        email_now=contact and contact.email,
    )
    return _Found(
        *(member, row["positions"], week),
        shards=frozen.shards,
        snapshot=frozen.snapshot,
        as_of=frozen.as_of,
        country=frozen.country,
    )


def _find_written(
    tables: Tables, client: str, week: IsoWeek, written: Written, now: datetime
) -> _Found:
    """Return from what a mail was written, as far as that is kept."""
    from shardpost.holders.spark.held_positions import contact_of  # imports PySpark

    frozen = FrozenWeeks(tables).find(week)
    if frozen and (frozen.snapshot, frozen.as_of) == (written.snapshot, written.as_of):
        found = _find_frozen(tables, client, week, frozen)
    else:
        snapshot = _kept(tables, written.snapshot, now)
        found = _find_held(tables, client, week, snapshot, written.as_of)
    if written.contacts == written.snapshot:
        return found
    contact = contact_of(tables, _kept(tables, written.contacts, now), client)
    name, email = (contact.name, contact.email) if contact else (None, None)
    return replace(found, member=replace(found.member, name=name, email=email))


def _kept(tables: Tables, number: int, now: datetime) -> Snapshot:
    """Return the first snapshot from that one on that is kept, which may say the same."""
    kept = snapshots.list_kept(tables, now=now, pinned=())
    return next((one for one in kept if one.number >= number), snapshots.current(tables))


def _find_held(
    tables: Tables, client: str, week: IsoWeek, snapshot: Snapshot, as_of: datetime
) -> _Found:
    from shardpost.holders.spark.held_positions import holding_of  # imports PySpark

    positions, contact = holding_of(tables, snapshot, as_of, client)
    if not positions:
        raise ShardpostError(
            f"week {week}: as of {as_of:%Y-%m-%d %H:%M} UTC {shown(client)} holds no"
            f" {snapshot.country} stock at snapshot {snapshot.number}, and would get no e-mail"
        )
    member = Member(client, None, None, has_contact=False, subscribed=None)
    if contact is not None:
        member = replace(member, has_contact=True, **contact._asdict())
    return _Found(
        *(member, positions, week),
        shards=None,
        snapshot=snapshot.number,
        as_of=as_of,
        country=snapshot.country,
    )


def _address_of(email: str | None) -> Address:
    found = check_address(email)
    return NOWHERE if isinstance(found, UnusableAddress) else found


def _text(value: str | tuple[Mailbox, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value))


class _HastyServer(SmtpServer):
    """The mail server for a test, whose delivery nothing depends on: a person waits for it."""

    def timeout(self, phase: Phase) -> float:
        return min(super().timeout(phase), TEST_SECONDS)


def _send(server: SmtpServer, made: Draft) -> None:
    """Send one mail in one attempt; ShardpostError says what became of it otherwise."""
    hasty = _HastyServer(**{**vars(server), "mail_attempts": 1})
    with closing(SmtpSession(hasty)) as session:
        outcome = session.send(made.mail())
    match outcome:
        case Accepted():
            return
        case NoReply(reason):
            raise ShardpostError(f"the test may have been sent or not: {reason}")
    raise ShardpostError(f"the test was not sent: {outcome.reason}")
