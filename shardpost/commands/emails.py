"""`shardpost emails`: what the ledger says of a week, and of one client."""

import json
from typing import Any

import click

from shardpost.commands.options import AS_JSON, Key
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.settings import Settings, load
from shardpost.weekly_email.model.iso_week import IsoWeek


@click.command()
@click.option("--week", required=True, metavar="WEEK", help="ISO week, such as 2026-W47.")
@click.option(
    "--client", type=Key(), metavar="CLIENT", help="Only this one: what happened, in order."
)
@AS_JSON
def command(week: str, client: str | None, as_json: bool) -> int:
    """Print how the weekly e-mail of a week stands, by shard; or why a client got one or did not.

    `open`: in the frozen audience and not dealt with yet. `unknown`: nobody can say whether it was
    sent; while a run is at work these are also the few that are being sent right now. Exit code 3
    if there are any.
    """
    settings, asked = load(), IsoWeek.parse(week)
    if client is not None:
        return _one(settings, asked, client, as_json=as_json)
    return _all(settings, asked, as_json=as_json)


def _all(settings: Settings, week: IsoWeek, *, as_json: bool) -> int:
    from shardpost.commands.email import counts_in_words
    from shardpost.weekly_email.delivery_status import status_by_shard

    found = status_by_shard(settings, week, _shards(settings))
    shards = [
        {
            "shard": stand.shard,
            "sent": stand.sent,
            "failed": stand.failed,
            "unknown": len(stand.unknown),
            "suppressed": stand.suppressed,
            "open": stand.open,
        }
        for stand in found
    ]
    unknown = sorted(client for stand in found for client in stand.unknown)
    result = {"week": str(week), "shards": shards, "unknown": unknown}
    click.echo(json.dumps(result) if as_json else counts_in_words(result))
    return NEEDS_ATTENTION if unknown else DONE


def _one(settings: Settings, week: IsoWeek, client: str, *, as_json: bool) -> int:
    from shardpost.kafka.partitioning import partition_of
    from shardpost.weekly_email.ledger_topic import rows_of

    found = rows_of(settings, week, partition_of(client, _shards(settings)), client)
    why = _why(settings, week, client, found)
    if as_json:
        click.echo(json.dumps(found))
        click.echo(why, err=True)
    else:
        for row in found:
            click.echo(f"{row['timestamp']}  {row['state']}{_reason(row)}")
        click.echo(why)
    in_doubt = bool(found) and found[-1]["state"] in ("sending", "unknown")
    return NEEDS_ATTENTION if in_doubt else DONE


def _why(settings: Settings, week: IsoWeek, client: str, found: list[dict[str, Any]]) -> str:
    """Say in one sentence why the client got an e-mail or did not."""
    from shardpost.weekly_email import frozen_weeks

    last = found[-1] if found else {"state": "open"}
    match last["state"]:
        case "sent":
            return f"{client} got the e-mail of {week}: {last['message_id']}"
        case "sending" | "unknown":
            return f"nobody can say whether {client} got the e-mail of {week}{_reason(last)}"
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


def _shards(settings: Settings) -> int:
    from shardpost.kafka.offsets import partition_counts

    topic = settings.topic("weekly-emails")
    return partition_counts(settings, [topic])[topic]
