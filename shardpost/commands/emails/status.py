"""The delivery status of a week, or of one client in it, as `shardpost emails` prints it."""

import json
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands.emails.week import FoundWeek, no_run
from shardpost.commands.week_counts import print_counts
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.printable import one_line
from shardpost.settings import Settings

if TYPE_CHECKING:
    from shardpost.weekly_email.delivery_status import EarlyAudience
    from shardpost.weekly_email.model.week import FrozenWeek


def print_week(found: FoundWeek, *, as_json: bool) -> int:
    """Print the counts of each shard, or that there was no run; return the exit code."""
    from shardpost.weekly_email.delivery_status import status_by_shard
    from shardpost.weekly_email.model.week_report import ShardStatus, gone_document, status_document

    if found.closed is not None:
        document = status_document(found.week, map(ShardStatus, found.closed.shards))
        document |= {"has_run": True, "closed": found.closed.in_words}
        print_counts(document, as_json=as_json)
        return DONE
    shards = status_by_shard(found.settings, found.week, found.audience, found.partitions)
    document = status_document(found.week, shards)
    document |= gone_document(found.audience)
    document["has_run"] = found.audience is not None or any(one.counts.clients for one in shards)
    if as_json or document["has_run"]:
        print_counts(document, as_json=as_json)
    else:
        click.echo(no_run(found.week))
    return NEEDS_ATTENTION if document["unknown"] or not found.is_whole() else DONE


def print_client(found: FoundWeek, client: str, *, as_json: bool) -> int:
    """Print the ledger of one client, and what follows from it; return the exit code."""
    from shardpost.kafka.partitioning import partition_of
    from shardpost.weekly_email.ledger_topic import rows_of

    shard = partition_of(client, found.partitions)
    rows = [] if found.closed else rows_of(found.settings, found.week, shard, client)
    why = one_line(_why(found, client, rows))
    if as_json:
        click.echo(json.dumps(rows))
        click.echo(why, err=True)
    else:
        for row in rows:
            click.echo(one_line(f"{row['timestamp']}  {row['state']}{_reason(row)}"))
        click.echo(why)
    is_unknown = bool(rows) and rows[-1]["state"] in ("sending", "unknown")
    return NEEDS_ATTENTION if is_unknown or not found.is_whole() else DONE


def _why(found: FoundWeek, client: str, rows: list[dict[str, Any]]) -> str:
    """Return one sentence: why the client got an e-mail or did not."""
    if found.closed is not None:
        return f"{client}: {found.closed.in_words}"
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
    from shardpost.weekly_email.delivery_status import NOT_MAILED, why_open

    audience, week = found.audience, found.week
    if audience is None:
        return f"{client} got no e-mail of {week}: no run of that week, so it has no audience yet"
    if gone := getattr(audience, "why_no_audience", None):
        return (
            f"{client} got no e-mail of {week} that the ledger knows of{reason}; whether it was in"
            f" that week's audience is not known any more: {gone}"
        )
    why = why_open(found.settings, audience, client)
    if why is None:
        return (
            f"{client} got no e-mail of {week}: it was not in that week's audience"
            f"{_why_no_member(found.settings, audience, client)}"
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
        f", since it held no stock that counts as of {audience.as_of:%Y-%m-%d %H:%M} UTC, by"
        f" snapshot {audience.snapshot}; `shardpost explain` says what put and took its positions"
    )


def _reason(row: dict[str, Any]) -> str:
    return f" ({row['reason']})" if row.get("reason") else ""
