"""What was decided about a rebuild, on record in the topic `decisions`."""

from contextlib import closing
from datetime import UTC, datetime

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.kafka.transactions import Transactions
from shardpost.rebuilds.arguments import Order
from shardpost.rebuilds.model.rebuild import Rebuild
from shardpost.settings import Settings


def record(
    settings: Settings, order: Order, rebuild: Rebuild, snapshot: int, *, again: bool = False
) -> None:
    """Put a swap, either way, on record, about `rebuild/<number>`.

    `again` if an earlier run may have done so for that snapshot: it is there once then.
    """
    about = f"rebuild/{rebuild.number}"
    decision = Decision(about.encode(), Kind.SWAPPED, order.by, datetime.now(UTC), order.why)
    headers = {"action": str(order.action).encode(), "snapshot": str(snapshot).encode()}
    with closing(
        Transactions(
            settings,
            f"{settings.topic('decisions')}/{about}",
            fenced=f"somebody else decides about {about}, too; the tables are swapped",
            failed="the decision cannot be written ({reason}): the tables are swapped, and nothing"
            " is on record",
        )
    ) as transactions:
        transactions.open()
        if not (again and _is_on_record(settings, decision, headers, rebuild.started_at)):
            transactions.write([decisions_topic.written(settings, decision, headers)])


def _is_on_record(
    settings: Settings, decision: Decision, headers: dict[str, bytes], since: datetime
) -> bool:
    since = since.replace(microsecond=0)  # the times of decisions are of whole seconds
    return any(
        (found.about, of_it) == (decision.about, headers)
        for found, of_it in decisions_topic.list_since(settings, since)
    )
