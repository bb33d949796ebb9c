"""Who is in one state of a week's e-mail, and why: `shardpost emails --state`."""

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands.emails.week import FoundWeek, has_run, no_run
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.printable import one_line
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.delivery_status import ListedClient


def print_state(found: FoundWeek, state: str, *, as_json: bool) -> int:
    """Print the clients that are in a state, grouped by reason; return the exit code.

    Exit code 3 if they are unknown, or the ledger lost records.
    """
    from shardpost.weekly_email.delivery_status import clients_in_state

    listed = clients_in_state(found.settings, found.week, found.audience, found.partitions, state)
    document = state_document(found.week, state, () if found.closed else listed)
    if as_json:
        click.echo(json.dumps(document))
    elif found.closed is not None:
        click.echo(found.closed.in_words)
    else:
        is_known = document["count"] or has_run(found)
        click.echo(state_text(document) if is_known else no_run(found.week))
    is_unknown = state == "unknown" and document["count"]
    return NEEDS_ATTENTION if is_unknown or not found.is_whole() else DONE


def state_document(week: IsoWeek, state: str, listed: "Iterable[ListedClient]") -> dict[str, Any]:
    """Return the clients by cause, the largest group first, each with its own reason.

    The cause, and the reason, of who was mailed is null.
    """
    from shardpost.weekly_email.model.ledger import DeliveryState
    from shardpost.weekly_email.model.week_report import cause_of

    groups: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for one in listed:
        form = {"client": one.client, "shard": one.shard, "reason": one.reason}
        cause = None if state == DeliveryState.SENT else cause_of(one.reason, one.client)
        groups[cause].append(form)
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
