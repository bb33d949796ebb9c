"""The members of an audience, as a task gets them from Spark, and the plan to mail them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.model.email_context import EmailContext, Sender
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.send_plan import SendPlan

WEEK = IsoWeek(2026, 47)
NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)

FIELDS = ("position", "ticker", "amount", "exchange")
MEMBERS = pa.schema(
    [
        ("client", pa.string()),
        ("name", pa.string()),
        ("email", pa.string()),
        ("has_contact", pa.bool_()),
        ("subscribed", pa.bool_()),
        ("name_now", pa.string()),
        ("email_now", pa.string()),
        ("language", pa.string()),
        ("positions", pa.list_(pa.struct([(name, pa.string()) for name in FIELDS]))),
    ]
)


def member(client: str, **more: Any) -> dict[str, Any]:
    """Return a member that is subscribed and has a contact, which is that of now as well."""
    row = {"client": client, "name": client, "email": f"{client}@x.example", "has_contact": True}
    row |= {"subscribed": True, "positions": [dict.fromkeys(FIELDS, client)]} | more
    return {"name_now": row["name"], "email_now": row["email"]} | row


def plan(
    ledger: LedgerIndex | None = None,
    resend: ResendPolicy | None = None,
    has_unsubscribed: Callable[[str], bool] = lambda _: False,
    as_of: datetime = WEEK.end,
) -> SendPlan:
    """Return the plan of a shard."""
    url = "https://x.test/{client}"
    sender = Sender("", "a@x.test", url, "list")
    context = EmailContext(WEEK, as_of, "US", sender)
    index = ledger or LedgerIndex.fold([])
    return SendPlan(index, resend or ResendPolicy(), context, lambda: NOW, has_unsubscribed)
