"""The lines of a dry run's lists for one shard: each client in its list, as JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from shardpost.weekly_email.forecast import DryRunList, Forecast, forecasts, has_got_one
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.send_plan import SendPlan

# States of the week before in which a client has not got its e-mail.
GOT_NONE = (DeliveryState.FAILED, DeliveryState.SUPPRESSED)


class ListedLine(NamedTuple):
    """One client of one list; the text is ASCII: it goes into logs."""

    list: DryRunList
    text: str


@dataclass(frozen=True)
class ShardLines:
    """Makes the lines of a shard: by what a run would do, and by the ledger of the week before.

    `before` is None if no week is compared with.
    """

    plan: SendPlan
    before: LedgerIndex | None

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[ListedLine]:
        """Yield the lines of a batch in the order of its rows.

        It has the columns that `SendPlan` takes, and `shard`, `is_member` of this week's audience,
        and `was_member` of the one before.
        """
        clients = batch.column("client").to_pylist()
        states = self.plan.ledger_index.states(clients)
        found = forecasts(self.plan, batch.filter(batch.column("is_member")))
        for row, state, had in zip(batch.to_pylist(), states, self._had(batch), strict=True):
            forecast = next(found) if row["is_member"] else None
            if forecast is not None:
                yield ListedLine(forecast.list, json.dumps(_member(row, forecast, state)))
            gets = forecast.gets_one if forecast else has_got_one(state)
            if self.before is not None and gets != had:
                kind = DryRunList.NEW if gets else DryRunList.LEFT
                yield ListedLine(kind, json.dumps(row["client"]))

    def _had(self, batch: pa.RecordBatch) -> list[bool]:
        """Tell of each row whether it got the e-mail of the week before, or is to get it yet."""
        members: list[bool] = batch.column("was_member").to_pylist()
        if self.before is None:
            return members
        states = self.before.states(batch.column("client").to_pylist())
        return [
            was_member and state not in GOT_NONE
            for was_member, state in zip(members, states, strict=True)
        ]


def _member(row: dict[str, Any], forecast: Forecast, state: DeliveryState | None) -> dict[str, Any]:
    if forecast.list is not DryRunList.RECIPIENTS:
        return {"client": row["client"], "shard": row["shard"], "reason": forecast.reason}
    return {
        "client": row["client"],
        "email": row["email_now" if state is DeliveryState.FAILED else "email"],
        "shard": row["shard"],
        "positions": [held["position"] for held in row["positions"]],
    }
