"""What was decided about a rebuild, on record in the topic `decisions`, as `rebuild/<number>`."""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.kafka.transactions import Transactions
from shardpost.rebuilds.arguments import Order
from shardpost.rebuilds.model.rebuild import Rebuild
from shardpost.settings import Settings

Headers = Mapping[str, bytes]


def record(
    settings: Settings, order: Order, rebuild: Rebuild, snapshot: int, *, again: bool = False
) -> None:
    """Put a swap, either way, on record.

    `again` if an earlier run may have done so for that snapshot: it is there once then.
    """
    decision = _decision(rebuild, Kind.SWAPPED, order.by, order.why)
    headers = {"action": str(order.action).encode(), "snapshot": str(snapshot).encode()}
    with closing(_transactions(settings, decision, "the tables are swapped")) as transactions:
        transactions.open()
        if not (again and _is_on_record(settings, decision, headers, rebuild.started_at)):
            transactions.write([decisions_topic.written(settings, decision, headers)])


def record_drop(settings: Settings, rebuild: Rebuild, by: str, why: str) -> None:
    """Put a drop on record, once; it is carried out afterwards."""
    decision, headers = _decision(rebuild, Kind.DISCARDED, by, why), {"action": b"drop"}
    with closing(_transactions(settings, decision, "nothing is dropped")) as transactions:
        transactions.open()
        if not _is_on_record(settings, decision, headers, rebuild.started_at):
            transactions.write([decisions_topic.written(settings, decision, headers)])


def _decision(rebuild: Rebuild, kind: Kind, by: str, why: str) -> Decision:
    return Decision(f"rebuild/{rebuild.number}".encode(), kind, by, datetime.now(UTC), why)


def _transactions(settings: Settings, decision: Decision, done: str) -> Transactions:
    about = decision.about.decode()
    return Transactions(
        settings,
        f"{settings.topic('decisions')}/{about}",
        fenced=f"somebody else decides about {about}, too; {done}",
        failed=f"the decision cannot be written ({{reason}}): {done}, and nothing is on record",
    )


def _is_on_record(
    settings: Settings, decision: Decision, headers: Headers, since: datetime
) -> bool:
    since = since.replace(microsecond=0)  # the times of decisions are of whole seconds
    return any(
        (found.about, of_it) == (decision.about, headers)
        for found, of_it in decisions_topic.list_since(settings, since)
    )
