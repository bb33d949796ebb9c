"""The delivery status of a week, or of one client in it, as `shardpost emails` prints it."""

import json
from typing import Any

import click

from shardpost.commands.week_counts import print_counts
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.printable import one_line
from shardpost.settings import Settings
from shardpost.weekly_email.model.iso_week import IsoWeek


def print_week(settings: Settings, week: IsoWeek, *, as_json: bool) -> int:
    """Print the counts of each shard; return the exit code."""
    from shardpost.weekly_email.delivery_status import status_by_shard
    from shardpost.weekly_email.model.shard_counts import counts_document

    document = counts_document(week, status_by_shard(settings, week, _partitions(settings)))
    print_counts(document, as_json=as_json)
    is_whole = _is_whole(settings, week)
    return NEEDS_ATTENTION if document["unknown"] or not is_whole else DONE


def print_client(settings: Settings, week: IsoWeek, client: str, *, as_json: bool) -> int:
    """Print the ledger of one client, and what follows from it; return the exit code."""
    from shardpost.kafka.partitioning import partition_of
    from shardpost.weekly_email.ledger_topic import rows_of

    rows = rows_of(settings, week, partition_of(client, _partitions(settings)), client)
    why = one_line(_why(settings, week, client, rows))
    if as_json:
        click.echo(json.dumps(rows))
        click.echo(why, err=True)
    else:
        for row in rows:
            click.echo(one_line(f"{row['timestamp']}  {row['state']}{_reason(row)}"))
        click.echo(why)
    is_unknown = bool(rows) and rows[-1]["state"] in ("sending", "unknown")
    is_whole = _is_whole(settings, week)
    return NEEDS_ATTENTION if is_unknown or not is_whole else DONE


def _is_whole(settings: Settings, week: IsoWeek) -> bool:
    """Tell whether the ledger has all that was written of the week; what it lacks is a warning."""
    from shardpost.weekly_email.ledger_guard import require_ledger

    try:
        require_ledger(settings, week)
    except ShardpostError as error:
        click.echo(one_line(f"shardpost: {error}"), err=True)
        return False
    return True


def _why(settings: Settings, week: IsoWeek, client: str, rows: list[dict[str, Any]]) -> str:
    """Return one sentence: why the client got an e-mail or did not."""
    from shardpost.weekly_email import frozen_weeks

    last = rows[-1] if rows else {"state": "open"}
    match last["state"]:
        case "sent":
            return f"{client} got the e-mail of {week}: {last['message_id']}{_reason(last)}"
        case "sending" | "unknown":
            return f"{client}: delivery of the e-mail of {week} unknown{_reason(last)}"
        case "failed" | "suppressed" as state:
            return f"{client} got no e-mail of {week}: {state}{_reason(last)}"
    frozen = frozen_weeks.find(settings, week)
    if frozen is None:
        return f"{client} got no e-mail of {week}: no run of that week has frozen its audience"
    if frozen_weeks.member(settings, frozen, client) is None:
        return (
            f"{client} got no e-mail of {week}: it is not in the audience; it held no stock that"
            f" counts as of {frozen.as_of:%Y-%m-%d %H:%M} UTC, by snapshot {frozen.snapshot}"
        )
    return f"{client} has not got the e-mail of {week} yet: it is open{_reason(last)}"


def _reason(row: dict[str, Any]) -> str:
    return f" ({row['reason']})" if row.get("reason") else ""


def _partitions(settings: Settings) -> int:
    from shardpost.kafka.offsets import partition_counts

    topic = settings.topic("weekly-emails")
    return partition_counts(settings, [topic])[topic]
