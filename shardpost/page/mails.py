"""One client's mail of a week: what the ledger says of it, and the mail as it was or would be."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response

from shardpost.instants import parse_instant
from shardpost.page.access import EMAILS, sees
from shardpost.page.rendering import HEADERS, Asked, Link, Listing, Visit
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.week_status import FoundWeek

router = APIRouter(prefix="/emails/mail", dependencies=[sees(EMAILS)])

COLUMNS = ("time", "state", "Message-ID", "reason", "record")
# A mail has its styles inline. Nothing in it runs, is loaded, sent, or opened.
MAIL_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
        "sandbox",
    )
)
Text = Annotated[str, Query(min_length=1)]


@router.get("")
def mail(visit: Asked, week: Text, client: Text) -> Response:
    """Show a client's mail of a week, and the ledger's records of it."""
    from shardpost.weekly_email.week_status import find_week, rows_of, why_of

    found = find_week(visit.settings, IsoWeek.parse(week), visit.now)
    rows = rows_of(found, client)
    listing = Listing(
        COLUMNS,
        [_row(visit, row) for row in rows],
        "The ledger has no record of this client in this week.",
    )
    rendered, why_none = _rendered(visit, found, client, rows)
    return visit.answer(
        "emails_mail.html",
        rows,
        listing,
        week=week,
        client=client,
        why=why_of(found, client, rows),
        state=rows[-1]["state"] if rows else None,
        rendered=rendered,
        why_none=why_none,
    )


def _row(visit: Visit, row: Mapping[str, Any]) -> Sequence[Any]:
    topic = visit.settings.topic("weekly-emails")
    place = f"{topic}[{row['shard']}]@{row['offset']}"
    url = visit.url("records", topic=topic, partition=str(row["shard"]), offset=str(row["offset"]))
    at = parse_instant(row["timestamp"])
    return (at, row["state"], row["message_id"], row["reason"], Link(place, url))


@router.get("/html")
def html(visit: Asked, week: Text, client: Text) -> Response:
    """Return the HTML of the mail alone, for a frame that runs and loads nothing."""
    from shardpost.weekly_email.week_status import find_week, rows_of

    found = find_week(visit.settings, IsoWeek.parse(week), visit.now)
    rendered, why_none = _rendered(visit, found, client, rows_of(found, client))
    text = rendered["html"] if rendered else why_none or ""
    headers = {**HEADERS, "Content-Security-Policy": MAIL_POLICY}
    if rendered is None:
        return Response(text, media_type="text/plain; charset=utf-8", headers=headers)
    return HTMLResponse(text, headers=headers)


def _rendered(
    visit: Visit, found: "FoundWeek", client: str, rows: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the mail's headers, text and HTML; or None, and why it cannot be rendered.

    As it was sent where it was, by the time of that; else as it would be now.
    """
    from email import message_from_bytes
    from email.policy import default

    from shardpost.errors import ShardpostError

    sent = [row for row in rows if row["state"] == "sent"]
    at = parse_instant(sent[-1]["timestamp"]) if sent else visit.now
    try:
        content = _content(visit, found, client, at)
    except ShardpostError as error:
        return None, str(error)
    message = message_from_bytes(content, policy=default)
    bodies = {
        part.get_content_type(): part.get_content() for part in message.walk() if _is_text(part)
    }
    return {
        "subject": str(message["Subject"]),
        "headers": content.partition(b"\r\n\r\n")[0].decode(errors="replace").replace("\r\n", "\n"),
        "text": bodies.get("text/plain", ""),
        "html": bodies.get("text/html", ""),
        "size": len(content),
        "sent": bool(sent),
    }, None


def _is_text(part: Any) -> bool:
    return str(part.get_content_type()).startswith("text/")


def _content(visit: Visit, found: "FoundWeek", client: str, at: Any) -> bytes:
    """Return the mail as it goes on the wire; ShardpostError for why there is none."""
    import pyarrow as pa

    from shardpost.addresses import UnusableAddress, check_address
    from shardpost.errors import ShardpostError
    from shardpost.weekly_email.frozen_weeks import FrozenWeeks
    from shardpost.weekly_email.model.email_request import EmailContext
    from shardpost.weekly_email.model.holdings import holdings_of_batch
    from shardpost.weekly_email.model.member import Recipient
    from shardpost.weekly_email.model.message import compose
    from shardpost.weekly_email.model.week import FrozenWeek
    from shardpost.weekly_email.model.week_tables import AUDIENCES
    from shardpost.weekly_email.smtp_server import sender_of

    frozen = found.status.audience
    if not isinstance(frozen, FrozenWeek):
        raise ShardpostError(f"the audience of {found.week} is not frozen")
    frozen.require_audience()
    member = FrozenWeeks(visit.settings).member(frozen, client)
    if member is None:
        raise ShardpostError(f"client {client} is not in the audience of {found.week}")
    address = check_address(member["email"])
    if isinstance(address, UnusableAddress):
        raise ShardpostError(f"no mail can be written to client {client}: {address.reason}")
    from shardpost.delta.arrow_schema import schema_of

    type_ = schema_of(AUDIENCES.columns).field("positions").type
    [holdings] = holdings_of_batch(pa.array([member["positions"]], type_))
    context = EmailContext(found.week, frozen.as_of, frozen.country, sender_of(visit.settings))
    to = Recipient(client, member["name"] or "", address)
    return compose(context, to, holdings, at).content
