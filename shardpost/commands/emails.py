"""`shardpost emails`: the status of a week, of one client; decisions."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands import console
from shardpost.commands.email import counts_text
from shardpost.errors import DONE, NEEDS_ATTENTION, UsageError, one_line, shown
from shardpost.installation import opened
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import STATES

if TYPE_CHECKING:
    from shardpost.delta.storage import Tables
    from shardpost.weekly_email.delivery_status import WeekStatus


@click.group(invoke_without_command=True)
@click.option("--week", metavar="WEEK", help="ISO week, such as 2026-W47. Required.")
@click.option("--client", type=console.KEY, metavar="CLIENT", help="Only this client's records.")
@click.option(
    "--state", type=click.Choice(STATES), help="List the clients in this state, grouped by reason."
)
@console.AS_JSON
@click.pass_context
def emails_command(
    ctx: click.Context, week: str | None, client: str | None, state: str | None
) -> int:
    """Print the delivery status of a week, by shard; or why a client got an e-mail or did not.

    `shardpost email` sends it. `open`: in the audience and not mailed yet. `unknown`: it is not
    known whether the e-mail was delivered; during a run, these include the few that are being sent.
    Exit code 3 if there are any (`emails resolve` settles them), or if the ledger lost records.
    """
    if (subcommand := ctx.invoked_subcommand) is not None:
        if console.wants_json() or any(given is not None for given in (week, client, state)):
            raise UsageError(f"put the options of `emails {subcommand}` after its name")
        return DONE
    if week is None:
        raise click.MissingParameter(ctx=ctx, param=ctx.command.params[0])
    if client is not None and state is not None:
        raise UsageError(
            "--client and --state: expected only one of them, since --client shows the state"
        )
    from shardpost.weekly_email.week_status import find_week

    iso_week = IsoWeek.parse(week)
    found = find_week(opened(), iso_week, datetime.now(UTC))
    if state is not None:
        return print_state(found, state)
    if client is not None:
        return print_client(found, client)
    return print_week(found)


@emails_command.command("resolve")
@console.WEEK
@click.option(
    "--client",
    "named",
    multiple=True,
    type=console.KEY,
    metavar="CLIENT",
    help="Whose; repeatable.",
)
@click.argument("more", nargs=-1, type=console.KEY, metavar="[CLIENT]...")
@click.option(
    "--as",
    "outcome",
    required=True,
    type=click.Choice(["sent", "open"]),
    help="`sent`: delivered. `open`: not delivered; the next run mails the client.",
)
@console.NEEDED_WHY
@console.YES
@console.BY
@console.AS_JSON
def resolve_command(
    week: str, named: tuple[str, ...], more: tuple[str, ...], outcome: str, why: str, by: str
) -> None:
    """Decide whether e-mails whose delivery is unknown were delivered.

    Changes nothing unless all of these clients are `unknown`. Refused while a
    run mails one of their shards.
    """
    from shardpost.weekly_email.week_decisions import Outcome, Resolution, resolve

    clients = tuple(dict.fromkeys((*named, *more)))
    if not clients:
        raise UsageError("--client: expected at least one client, found none")
    decided = Resolution(IsoWeek.parse(week), clients, Outcome(outcome), by, why, datetime.now(UTC))
    what = "will be mailed again" if decided.outcome is Outcome.OPEN else "got it, for good"
    console.confirm(f"{decided.week}: {', '.join(clients)}: record that they {what}?")
    shards = resolve(opened(), decided)
    rows = [{"client": client, "shard": shards[client], "state": outcome} for client in clients]
    console.print_document(
        {"week": str(decided.week), "resolved": rows},
        lambda: [f"{shown(one)}: {outcome} (was unknown), shard {shards[one]}" for one in clients],
    )


@emails_command.command("accept-ledger")
@console.WEEK
@console.NEEDED_WHY
@console.YES
@console.BY
def accept_ledger_command(week: str, why: str, by: str) -> None:
    """Accept a week's ledger that lost records, so that the week can be mailed again.

    The next run mails all clients that it no longer lists, even if they already got the e-mail.
    """
    from shardpost.weekly_email.week_decisions import accept_ledger
    from shardpost.weekly_email.week_state import WeekState

    iso_week = IsoWeek.parse(week)
    if WeekState(opened(), iso_week).why_incomplete() is None:
        click.echo(f"{iso_week}: no known losses in its ledger: nothing to accept")
        return
    console.confirm(
        f"{iso_week}: mail clients that the ledger does not list, even if they got the e-mail?"
    )
    accept_ledger(opened(), iso_week, by, why, datetime.now(UTC))
    click.echo(f"{iso_week}: accepted the current ledger; clients not in it will be mailed")


@emails_command.command("pause")
@console.WEEK
@console.NEEDED_WHY
@console.BY
def pause_command(week: str, why: str, by: str) -> None:
    """Stop mailing a week: runs that mail it end within seconds, and others refuse it.

    Mails already handed to the server are finished; clients that are not mailed yet stay open. To
    continue: `emails resume`, then `shardpost email`; nobody is mailed twice.
    """
    from shardpost.weekly_email.week_decisions import pause

    paused = pause(opened(), IsoWeek.parse(week), by, why, datetime.now(UTC))
    click.echo(one_line(f"{paused.week}: paused: its runs end now, and later runs refuse it"))


@emails_command.command("resume")
@console.WEEK
@console.NEEDED_WHY
@console.BY
def resume_command(week: str, why: str, by: str) -> None:
    """Allow runs of a paused week again. Starts no run: `shardpost email` does."""
    from shardpost.weekly_email.week_decisions import resume

    resumed = resume(opened(), IsoWeek.parse(week), by, why, datetime.now(UTC))
    click.echo(
        one_line(
            f"{resumed.week}: resumed: `shardpost email --week {resumed.week}`, or the DAG"
            " weekly_email, mails the remaining clients"
        )
    )


def print_week(found: "WeekStatus") -> int:
    """Print the counts of each shard, or that there was no run; return the exit code."""
    from shardpost.weekly_email.week_status import no_run, week_document

    document = week_document(found)
    console.print_document(
        document, lambda: counts_text(document) if document["has_run"] else no_run(found.week)
    )
    is_well = found.closed is not None or (not document["unknown"] and _is_whole(found))
    return DONE if is_well else NEEDS_ATTENTION


def print_client(found: "WeekStatus", client: str) -> int:
    """Print the ledger of one client, and what follows from it; return the exit code."""
    from shardpost.weekly_email.week_status import reason_text, rows_of, why_of

    rows = rows_of(found, client)
    installation = found.state.installation
    more = "; `shardpost explain` shows which records added or removed its positions"
    why = one_line(
        why_of(found, client, rows, lambda name: _why_unknown(installation.tables, name), more)
    )
    lines = [f"{row['timestamp']}  {row['state']}{reason_text(row)}" for row in rows]
    console.print_document(rows, lambda: [*lines, why])
    if console.wants_json():
        click.echo(why, err=True)
    is_unknown = bool(rows) and rows[-1]["state"] in ("sending", "unknown")
    return NEEDS_ATTENTION if is_unknown or not _is_whole(found) else DONE


def print_state(found: "WeekStatus", state: str) -> int:
    """Print the clients that are in a state, grouped by reason; return the exit code."""
    from shardpost.weekly_email.week_status import state_document

    listed = found.in_state(state)
    document = state_document(found.week, state, listed)
    console.print_document(document, lambda: _state_text(found, document))
    is_unknown = state == "unknown" and document["count"]
    return NEEDS_ATTENTION if is_unknown or not _is_whole(found) else DONE


def _is_whole(found: "WeekStatus") -> bool:
    """Tell whether the ledger has all records of the week; print why if it has not."""
    if why := found.state.why_incomplete():
        click.echo(one_line(f"shardpost: {why}"), err=True)
    return why is None


def _why_unknown(tables: "Tables", client: str) -> str | None:
    from shardpost.delta import snapshots
    from shardpost.holders.queries import knows_client, unknown_client

    newest = snapshots.newest(tables)
    if newest is None or knows_client(tables, newest, client):
        return None
    return unknown_client(tables, newest, client)


def _state_text(found: "WeekStatus", document: dict[str, Any]) -> str:
    from shardpost.weekly_email.week_status import has_run, no_run

    if found.closed is not None:
        return found.closed.explanation
    if not document["count"] and not has_run(found):
        return no_run(found.week)
    lines = [f"{document['week']}: {document['count']} {document['state']}"]
    for group in document["groups"]:
        if group["reason"] is not None:
            lines.append(f'{group["count"]} with "{group["reason"]}"')
        for one in group["clients"]:
            own = f": {one['reason']}" if one["reason"] not in (None, group["reason"]) else ""
            lines.append(f"  {shown(one['client'])}, shard {one['shard']}{own}")
    return "\n".join(map(one_line, lines))
