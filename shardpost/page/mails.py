"""One client's mail of a week: its ledger records, and the mail as it was or would be."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError, UsageError
from shardpost.instants import parse_instant
from shardpost.kafka.transactions import anyone
from shardpost.page.access import EMAILS, acts, sees
from shardpost.page.record_outcomes import record_link
from shardpost.page.rendering import HEADERS, Listing
from shardpost.page.request import CurrentRequest, PageRequest, Reason, Required
from shardpost.weekly_email.delivery_status import WeekStatus
from shardpost.weekly_email.model.ledger import erased_id
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_status import find_week, rows_of, why_of

if TYPE_CHECKING:
    from shardpost.weekly_email.mail_preview import MailPreview

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


@router.get("")
def mail(visit: CurrentRequest, week: Required, client: Required) -> Response:
    """Show a client's mail of a week, and the ledger's records of it."""
    found = find_week(visit.installation, IsoWeek.parse(week), visit.now)
    rows, ledger = rows_of(found, client), visit.installation.kafka.topic("weekly-emails")
    cells = [
        (
            parse_instant(row["timestamp"]),
            *(row["state"], row["message_id"], row["reason"]),
            record_link(visit, ledger, row["shard"], row["offset"]),
        )
        for row in rows
    ]
    listing = Listing(COLUMNS, cells, "The ledger has no record of this client in this week.")
    shown, why_none = _shown(visit, found, client, rows)
    return visit.answer(
        "emails_mail.html",
        rows,
        listing,
        week=week,
        client=client,
        why=why_of(found, client, rows),
        state=rows[-1]["state"] if rows else None,
        shown=shown,
        why_none=why_none,
    )


@router.get("/html")
def html(visit: CurrentRequest, week: Required, client: Required) -> Response:
    """Return the HTML of the mail alone, for a frame that runs and loads nothing."""
    found = find_week(visit.installation, IsoWeek.parse(week), visit.now)
    shown, why_none = _shown(visit, found, client, rows_of(found, client))
    headers = {**HEADERS, "Content-Security-Policy": MAIL_POLICY}
    if shown is None:
        return PlainTextResponse(why_none, headers=headers)
    return HTMLResponse(shown.html, headers=headers)


def _shown(
    visit: PageRequest, found: WeekStatus, client: str, rows: Sequence[Mapping[str, Any]]
) -> tuple["MailPreview | None", str | None]:
    """Return the mail, as it was sent if it was; or None, and why there is none."""
    from shardpost.weekly_email.mail_preview import preview

    try:
        return preview(visit.installation, client, found.week, rows, now=visit.now), None
    except ShardpostError as error:
        return None, str(error)


@router.post("/test", dependencies=acts(EMAILS))
def test(
    visit: CurrentRequest,
    week: Annotated[str, Form()],
    client: Annotated[str, Form()],
    to: Annotated[str, Form(min_length=3, max_length=320)],
    why: Reason,
) -> Response:
    """Send the mail to another address, marked as a test, outside the ledger."""
    from shardpost.weekly_email.mail_preview import preview, send_test

    name, found = unpacked(client), find_week(visit.installation, IsoWeek.parse(week), visit.now)
    of = (visit.installation, name, found.week, rows_of(found, name))
    shown = preview(*of, now=visit.now)
    sent = send_test(visit.installation, shown, to, visit.now)
    topic, about = visit.installation.kafka.topic("weekly-emails"), f"{week}/{name}"
    said = f"sent as a test to {sent['to']}: {why}"
    decisions_topic.record(
        visit.installation.kafka,
        f"{topic}/{erased_id(about)}/test",
        Decision(about.encode(), Kind.TESTED, visit.name, visit.now, said),
        {},
        may_write=anyone,  # the test was sent
        done="the test was sent",
    )
    return visit.back_to(
        "emails/mail", "sent to {to} as a test: {subject}".format(**sent), week=week, client=name
    )


def unpacked(value: str) -> str:
    """Return a client of a form, where it is JSON: a browser changes the ends of lines."""
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, str):
        raise UsageError(f"client: expected a text as JSON, found {value!r}")
    return found
