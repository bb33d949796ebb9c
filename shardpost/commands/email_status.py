"""What `shardpost emails` prints: the status of a week, of one client in it, or of one state."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands.console import print_document
from shardpost.commands.email import counts_text
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, one_line
from shardpost.settings import Settings
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.delivery_status import EarlyAudience, ListedClient, WeekStatus
    from shardpost.weekly_email.model.week import FrozenWeek
    from shardpost.weekly_email.model.week_tables import ClosedWeek


@dataclass(frozen=True)
class FoundWeek:
    """A week, and how it was closed, if it was: then the ledger has nothing of it."""

    status: "WeekStatus"
    closed: "ClosedWeek | None" = None

    @property
    def week(self) -> IsoWeek:
        """The week."""
        return self.status.week

    def is_whole(self) -> bool:
        """Tell whether the ledger has all records of the week; print why if it has not."""
        from shardpost.weekly_email.ledger_guard import LedgerGuard

        try:
            LedgerGuard(self.status.settings, self.week).require_ledger()
        except ShardpostError as error:
            click.echo(one_line(f"shardpost: {error}"), err=True)
            return False
        return True


def find_week(settings: Settings, week: IsoWeek, now: datetime) -> FoundWeek:
    """Return the week as of now."""
    from shardpost.kafka.topic_metadata import partition_counts
    from shardpost.weekly_email import closed_weeks
    from shardpost.weekly_email.delivery_status import WeekStatus, audience_of

    topic = settings.topic("weekly-emails")
    partitions = partition_counts(settings, [topic])[topic]
    closed = closed_weeks.find(settings, week, now)
    audience = None if closed else audience_of(settings, week, now)
    return FoundWeek(WeekStatus(settings, week, audience, partitions), closed)


def has_run(found: FoundWeek) -> bool:
    """Tell whether a run began the week: it has an audience, or somebody is in its ledger."""
    if found.status.audience is not None or found.closed is not None:
        return True
    return any(shard.counts.clients for shard in found.status.by_shard())


def no_run(week: IsoWeek) -> str:
    """Return what to print of a week that no run has begun."""
    return f"{week}: no run of this week: nobody was mailed"


def print_week(found: FoundWeek, *, as_json: bool) -> int:
    """Print the counts of each shard, or that there was no run; return the exit code."""
    from shardpost.weekly_email.model.week_report import ShardStatus, gone_document, status_document

    closed, audience = found.closed, found.status.audience
    shards = [*map(ShardStatus, closed.shards)] if closed else found.status.by_shard()
    document = status_document(found.week, shards) | gone_document(audience) | _late(found)
    is_begun = closed is not None or audience is not None
    document["has_run"] = is_begun or any(one.counts.clients for one in shards)
    if closed is not None:
        document["closed"] = closed.explanation
    print_document(
        document,
        lambda: counts_text(document) if document["has_run"] else no_run(found.week),
        as_json=as_json,
    )
    is_well = closed is not None or (not document["unknown"] and found.is_whole())
    return DONE if is_well else NEEDS_ATTENTION


def _late(found: FoundWeek) -> dict[str, Any]:
    """Return whom late records concern, null where that is not known; nothing before a freeze."""
    from shardpost.weekly_email.late_records import find_late
    from shardpost.weekly_email.model.week import FrozenWeek

    audience = found.status.audience
    if not isinstance(audience, FrozenWeek):
        return {}
    late = find_late(found.status.settings, audience)
    return {"late": None if late is None else late.as_json()}


def print_client(found: FoundWeek, client: str, *, as_json: bool) -> int:
    """Print the ledger of one client, and what follows from it; return the exit code."""
    from shardpost.kafka.partitioning import partition_of
    from shardpost.weekly_email.ledger_topic import ShardLedger

    shard = partition_of(client, found.status.partitions)
    ledger = ShardLedger(found.status.settings, found.week, shard)
    rows = [] if found.closed else ledger.rows_of(client)
    why = one_line(_why(found, client, rows))
    lines = [f"{row['timestamp']}  {row['state']}{_reason(row)}" for row in rows]
    print_document(rows, lambda: [*lines, why], as_json=as_json)
    if as_json:
        click.echo(why, err=True)
    is_unknown = bool(rows) and rows[-1]["state"] in ("sending", "unknown")
    return NEEDS_ATTENTION if is_unknown or not found.is_whole() else DONE


def _why(found: FoundWeek, client: str, rows: list[dict[str, Any]]) -> str:
    """Return one sentence: why the client got an e-mail or did not."""
    if found.closed is not None:
        return f"{client}: {found.closed.explanation}"
    last, week = rows[-1] if rows else {"state": "open"}, found.week
    match last["state"]:
        case "sent":
            return f"{client} got the e-mail of {week}: {last['message_id']}{_reason(last)}"
        case "sending" | "unknown":
            return f"{client}: delivery of the e-mail of {week} unknown{_reason(last)}"
        case "failed" | "suppressed" as state:
            return f"{client} got no e-mail of {week}: {state}{_reason(last)}"
    return _why_open(found, client, _reason(last))


def _why_open(found: FoundWeek, client: str, reason: str) -> str:
    from shardpost.weekly_email.delivery_status import NOT_MAILED

    audience, week = found.status.audience, found.week
    if audience is None:
        return f"{client} got no e-mail of {week}: no run of that week, so it has no audience yet"
    if gone := getattr(audience, "why_no_audience", None):
        return (
            f"{client}: the ledger has no e-mail of {week}{reason}; whether it was in that week's"
            f" audience is no longer known: {gone}"
        )
    why = found.status.why_open(client)
    if why is None:
        return (
            f"{client} got no e-mail of {week}: it was not in that week's audience"
            f"{_why_no_member(found.status.settings, audience, client)}"
        )
    said = reason if why == NOT_MAILED else f": {why}"
    return f"{client} has not got the e-mail of {week} yet: it is open{said}"


def _why_no_member(settings: Settings, audience: "FrozenWeek | EarlyAudience", client: str) -> str:
    from shardpost.commands.holders import unknown_client
    from shardpost.delta import snapshots
    from shardpost.holders.queries import knows_client

    newest = snapshots.newest(settings)
    if newest is not None and not knows_client(settings, newest, client):
        return f": {unknown_client(newest, client)}"
    return (
        f", since it held no stock of SHARDPOST_COUNTRY as of {audience.as_of:%Y-%m-%d %H:%M} UTC,"
        f" by snapshot {audience.snapshot}; `shardpost explain` shows which records added or"
        " removed its positions"
    )


def _reason(row: dict[str, Any]) -> str:
    return f" ({row['reason']})" if row.get("reason") else ""


def print_state(found: FoundWeek, state: str, *, as_json: bool) -> int:
    """Print the clients that are in a state, grouped by reason; return the exit code."""
    listed = () if found.closed else found.status.in_state(state)
    document = state_document(found.week, state, listed)
    print_document(document, lambda: _state_text(found, document), as_json=as_json)
    is_unknown = state == "unknown" and document["count"]
    return NEEDS_ATTENTION if is_unknown or not found.is_whole() else DONE


def _state_text(found: FoundWeek, document: dict[str, Any]) -> str:
    if found.closed is not None:
        return found.closed.explanation
    is_known = document["count"] or has_run(found)
    return state_text(document) if is_known else no_run(found.week)


def state_document(week: IsoWeek, state: str, listed: "Iterable[ListedClient]") -> dict[str, Any]:
    """Return the clients by cause, the largest group first, each with its own reason.

    The cause, and the reason, of who was mailed is null.
    """
    from shardpost.weekly_email.model.ledger import DeliveryState
    from shardpost.weekly_email.model.week_report import cause_of

    groups: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for one in listed:
        cause = None if state == DeliveryState.SENT else cause_of(one.reason, one.client)
        groups[cause].append(vars(one))
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0] or ""))
    return {
        "week": str(week),
        "state": state,
        "count": sum(map(len, groups.values())),
        "groups": [
            {"reason": reason, "count": len(clients), "clients": clients}
            for reason, clients in ordered
        ],
    }


def state_text(document: dict[str, Any]) -> str:
    """Return the groups: each reason, and under it a line for each client."""
    lines = [f"{document['week']}: {document['count']} {document['state']}"]
    for group in document["groups"]:
        if group["reason"] is not None:
            lines.append(f'{group["count"]} with "{group["reason"]}"')
        for one in group["clients"]:
            own = f": {one['reason']}" if one["reason"] not in (None, group["reason"]) else ""
            lines.append(f"  {one['client']}, shard {one['shard']}{own}")
    return "\n".join(map(one_line, lines))
