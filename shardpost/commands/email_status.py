"""What `shardpost emails` prints: the status of a week, of one client in it, or of one state."""

from typing import TYPE_CHECKING, Any

import click

from shardpost.commands.console import print_document
from shardpost.commands.email import counts_text
from shardpost.errors import DONE, NEEDS_ATTENTION, one_line, shown

if TYPE_CHECKING:
    from shardpost.delta.object_store import Tables
    from shardpost.weekly_email.week_status import FoundWeek


def print_week(found: "FoundWeek", *, as_json: bool) -> int:
    """Print the counts of each shard, or that there was no run; return the exit code."""
    from shardpost.weekly_email.week_status import no_run, week_document

    document = week_document(found)
    print_document(
        document,
        lambda: counts_text(document) if document["has_run"] else no_run(found.week),
        as_json=as_json,
    )
    is_well = found.closed is not None or (not document["unknown"] and _is_whole(found))
    return DONE if is_well else NEEDS_ATTENTION


def print_client(found: "FoundWeek", client: str, *, as_json: bool) -> int:
    """Print the ledger of one client, and what follows from it; return the exit code."""
    from shardpost.weekly_email.week_status import reason_text, rows_of, why_of

    rows = rows_of(found, client)
    installation = found.status.installation
    why = one_line(
        why_of(found, client, rows, lambda name: _why_unknown(installation.tables, name))
    )
    lines = [f"{row['timestamp']}  {row['state']}{reason_text(row)}" for row in rows]
    print_document(rows, lambda: [*lines, why], as_json=as_json)
    if as_json:
        click.echo(why, err=True)
    is_unknown = bool(rows) and rows[-1]["state"] in ("sending", "unknown")
    return NEEDS_ATTENTION if is_unknown or not _is_whole(found) else DONE


def print_state(found: "FoundWeek", state: str, *, as_json: bool) -> int:
    """Print the clients that are in a state, grouped by reason; return the exit code."""
    from shardpost.weekly_email.week_status import state_document

    listed = () if found.closed else found.status.in_state(state)
    document = state_document(found.week, state, listed)
    print_document(document, lambda: _state_text(found, document), as_json=as_json)
    is_unknown = state == "unknown" and document["count"]
    return NEEDS_ATTENTION if is_unknown or not _is_whole(found) else DONE


def _is_whole(found: "FoundWeek") -> bool:
    """Tell whether the ledger has all records of the week; print why if it has not."""
    if why := found.why_incomplete():
        click.echo(one_line(f"shardpost: {why}"), err=True)
    return why is None


def _why_unknown(tables: "Tables", client: str) -> str | None:
    from shardpost.delta import snapshots
    from shardpost.holders.absence import unknown_client
    from shardpost.holders.queries import knows_client

    newest = snapshots.newest(tables)
    if newest is None or knows_client(tables, newest, client):
        return None
    return unknown_client(tables, newest, client)


def _state_text(found: "FoundWeek", document: dict[str, Any]) -> str:
    from shardpost.weekly_email.week_status import has_run, no_run

    if found.closed is not None:
        return found.closed.explanation
    is_known = document["count"] or has_run(found)
    return state_text(document) if is_known else no_run(found.week)


def state_text(document: dict[str, Any]) -> str:
    """Return the groups: each reason, and under it a line for each client."""
    lines = [f"{document['week']}: {document['count']} {document['state']}"]
    for group in document["groups"]:
        if group["reason"] is not None:
            lines.append(f'{group["count"]} with "{group["reason"]}"')
        for one in group["clients"]:
            own = f": {one['reason']}" if one["reason"] not in (None, group["reason"]) else ""
            lines.append(f"  {shown(one['client'])}, shard {one['shard']}{own}")
    return "\n".join(map(one_line, lines))
