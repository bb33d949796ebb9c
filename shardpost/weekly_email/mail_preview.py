"""One client's mail of a week as it was or would be written; and the same, sent as a test.

Of a week that was frozen it is that of its audience: what was sent as it was sent, else by the
templates of now. Of another week it is what a run of now would send, as of the newest snapshot. No
JVM, and nothing is written: a test goes to the mail server and leaves nothing in the ledger.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from shardpost.addresses import Address, Mailbox, UnusableAddress, check_address
from shardpost.delta import snapshots
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.instants import parse_instant
from shardpost.settings import Settings
from shardpost.shards import shard_of
from shardpost.weekly_email import mail_looks
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.email_request import EmailContext, Sender
from shardpost.weekly_email.model.holdings import Holdings, holdings_of_batch
from shardpost.weekly_email.model.mail_rendering import Rendered, rendered
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.member import Member, Recipient, recipient_of
from shardpost.weekly_email.model.message import Draft, Rendering, draft
from shardpost.weekly_email.model.retry import Accepted, NoReply
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.own_templates import read, with_subject
from shardpost.weekly_email.smtp import SmtpSession
from shardpost.weekly_email.smtp_server import sender_of, shown_sender_of

# Somebody waits for a test.
TEST_SECONDS = 30.0
NOWHERE = Address("nobody@invalid", needs_utf8=False)


@dataclass(frozen=True)
class MailPreview:
    """One mail as people read it: its headers are decoded, in their order.

    `is_frozen`: it is of the audience that was frozen, and else what a run of now would send.
    `snapshot` is the one that it is of, and `as_of` when its positions were held. `language` is
    that of its numbers and dates, None for those of records. `remark` is why no run would send it
    now, None if one would. `look_since`: it is by the sender and the templates that its shard was
    mailed by from then on; None: by those of now.
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
    remark: str | None
    look_since: datetime | None

    def as_json(self) -> dict[str, Any]:
        """Return the document of `email preview --json`."""
        since = self.look_since and self.look_since.isoformat()
        return {**vars(self), "as_of": self.as_of.isoformat(), "look_since": since}


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


def when_sent(rows: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Return when a client was sent its mail, by the ledger's rows of it; None if it was not."""
    sent = [row["timestamp"] for row in rows if row["state"] == "sent"]
    return parse_instant(sent[-1]) if sent else None


def preview(
    settings: Settings,
    client: str,
    week: IsoWeek,
    *,
    now: datetime | None = None,
    sent_at: datetime | None = None,
    subject: str | None = None,
    render: Callable[..., Rendered] = rendered,
) -> MailPreview:
    """Return a client's mail of a week, frozen or as of now; `now` is by default the clock's time.

    With `sent_at` of a frozen week it is the one that was sent then. `subject` is a template that
    is tried in the place of the subject's; `render` is what renders it, perhaps within bounds.
    ShardpostError for a client that gets none: it is not in the audience, or holds nothing. One
    that is not subscribed, or has no usable address, has its mail with a remark. UsageError for a
    template that is wrong.
    """
    now = sent_at or now or datetime.now(UTC)
    found = _find(settings, client, week, now)
    to = recipient_of(found.member)
    remark = None
    if not isinstance(to, Recipient):
        remark = f"no run sends it: {to.reason}"
        to = found.recipient(_address_of(found.member.email))
    sender, look = shown_sender_of(settings), None
    if sent_at is not None and found.shards is not None:
        look = mail_looks.find(settings, week, shard_of(client, found.shards), sent_at)
    if look is not None:
        sender = replace(sender, name=look.sender_name, address=look.sender_address)
    templates = read(settings) if look is None else look.templates
    if subject is not None:
        templates = with_subject(templates, subject)
    is_tried = look is None or subject is not None
    made = found.draft(sender, templates, to, now, render=partial(render, is_tried=is_tried))
    headers = {name: _text(value) for name, value in made.headers.items()}
    if to.address == NOWHERE:
        del headers["To"]
    return MailPreview(
        *(client, str(week), headers["Subject"], headers, made.text, made.html),
        is_frozen=found.shards is not None,
        snapshot=found.snapshot,
        as_of=found.as_of,
        language=templates.language_for(to.language),
        remark=remark,
        look_since=look.at if look else None,
    )


def send_test(
    settings: Settings,
    client: str,
    week: IsoWeek,
    to: str,
    *,
    now: datetime | None = None,
    render: Callable[..., Rendered] = rendered,
) -> SentTest:
    """Send a client's mail of a week to another address, marked as a test, outside the ledger.

    It has another Message-ID, and unsubscribes nobody. ShardpostError if the mail server does not
    take it, or there is no such mail; UsageError for an address that is none.
    """
    address = check_address(to)
    if isinstance(address, UnusableAddress):
        raise UsageError(f"address: {address.reason}")
    now = now or datetime.now(UTC)
    found = _find(settings, client, week, now)
    sender, tried = sender_of(settings), partial(render, is_tried=True)
    recipient = found.recipient(address)
    made = found.draft(sender, read(settings), recipient, now, is_test=True, render=tried)
    _send(settings, made)
    subject = _text(made.headers["Subject"])
    return SentTest(client, str(week), address.text, subject, made.message_id)


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


def _find(settings: Settings, client: str, week: IsoWeek, now: datetime) -> _Found:
    frozen = FrozenWeeks(settings).find(week)
    if frozen is not None:
        return _find_frozen(settings, client, week, frozen)
    return _find_current(settings, client, week, now)


def _find_frozen(settings: Settings, client: str, week: IsoWeek, frozen: FrozenWeek) -> _Found:
    from shardpost.holders.spark.held_positions import contact_of  # imports PySpark

    frozen.require_audience()
    row = FrozenWeeks(settings).member(frozen, client)
    if row is None:
        raise ShardpostError(
            f"week {week}: {shown(client)} is not in its audience, and gets no e-mail:"
            f" `shardpost explain` says which records gave and took its positions"
        )
    contact = contact_of(settings, snapshots.current(settings), client)
    member = Member(
        *(client, row["name"], row["email"]),
        has_contact=row["has_contact"],
        subscribed=contact and contact.subscribed,
        language=row.get("language"),
    )
    return _Found(
        *(member, row["positions"], week),
        shards=frozen.shards,
        snapshot=frozen.snapshot,
        as_of=frozen.as_of,
        country=frozen.country,
    )


def _find_current(settings: Settings, client: str, week: IsoWeek, now: datetime) -> _Found:
    from shardpost.holders.spark.held_positions import holding_of  # imports PySpark

    snapshot = snapshots.current(settings)
    as_of = week.held_at(now, snapshot.looked_at)
    positions, contact = holding_of(settings, snapshot, as_of, client)
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


def _send(settings: Settings, made: Draft) -> None:
    """Send one mail in one attempt; ShardpostError says what became of it otherwise."""
    names = ("smtp_connect_timeout", "smtp_timeout", "smtp_end_timeout")
    limits: Mapping[str, float] = {
        name: min(getattr(settings, name), TEST_SECONDS) for name in names
    }
    session = SmtpSession(settings.model_copy(update={"mail_attempts": 1, **limits}))
    with closing(session):
        outcome = session.send(made.mail())
    match outcome:
        case Accepted():
            return
        case NoReply(reason):
            raise ShardpostError(f"the test may have been sent or not: {reason}")
    raise ShardpostError(f"the test was not sent: {outcome.reason}")
