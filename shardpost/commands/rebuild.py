"""`shardpost rebuild`: start, diff, swap, rollback, drop and list."""

from datetime import UTC, datetime
from typing import Any

import click

from shardpost.commands.console import AS_JSON, BY, WHY, YES, confirm, print_document
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.installation import opened
from shardpost.rebuilds.model.difference import rule_text
from shardpost.wording import counted, parse_share


def submit_request(action: str, by: str, **more: Any) -> tuple[int, dict[str, Any] | None]:
    """Let the job do what a request says; return its exit code, and its result if it has one."""
    from shardpost.rebuilds.rebuild_job import REBUILD_TABLES, Action, RebuildRequest
    from shardpost.spark.submit import submit

    return submit(opened(), REBUILD_TABLES, RebuildRequest(Action(action), by, **more))


def carry_out_request(action: str, by: str, **more: Any) -> int:
    """Let the job do what a request says, and print its result."""
    code, result = submit_request(action, by, **more)
    if result is None:
        return code
    print_document(result, lambda: rebuild_text(result))
    if code == NEEDS_ATTENTION and "refused" in result:
        click.echo(f"shardpost: {result['refused']}", err=True)
    return code


def rebuild_text(found: dict[str, Any]) -> str:
    """Return what is known of a rebuild as one line."""
    line = f"rebuild {found['rebuild']} is {found['state']}: {rule_text(found)}, from"
    line += f" {found['source']}, {', '.join(found['tables'].values())}"
    if found["state"] == "building":
        progress = found["progress"]
        line += f"; {progress['records']:,} of {progress['of_records']:,} records"
    elif found["state"] == "in use":
        line += f"; for a rollback, the tables as of snapshot {found['snapshot']} are kept"
    elif found["behind"]:
        line += f"; its tables are {counted(found['behind'], 'snapshot')} behind"
    if "published" in found:
        done = f"{counted(found['published'], 'record')} published"
        if found.get("letters"):
            done += f", {counted(found['letters'], 'dead letter')}"
        if "committed" in found:
            differ = counted(found["changed_holders"], "list differs", "lists differ")
            done = f"snapshot {found['committed']}: {differ}, {done}"
        line += f"; {done}"
    for gone in found["missing"]:
        line += f"\nno longer in Kafka: {gone}"
    return line


@click.group()
def rebuild_command() -> None:
    """Compute the tables anew beside those in use, compare, swap, and roll back.

    Compactions, e-mails and readers continue meanwhile, on the tables in use.
    """


@rebuild_command.command("start")
@click.option(
    "--country",
    metavar="CODE",
    help="Country whose exchanges count, such as US; default: what the settings have.",
)
@click.option(
    "--holds",
    metavar="CONDITION",
    help="Instead of a country, a condition as SHARDPOST_HOLDS has it, such as \"country = 'US' AND"
    ' amount > 0".',
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["history", "kafka"]),
    default="history",
    show_default=True,
    help="Decode the raw records in the histories again, or read the topics, without what Kafka "
    "has deleted.",
)
@click.option(
    "--tables",
    metavar="NAMES",
    help="Comma-separated table names; tables derived from them are rebuilt too. Default: all.",
)
@BY
@AS_JSON
def start_command(
    country: str | None, holds: str | None, source: str, tables: str | None, by: str
) -> int:
    """Rebuild the tables while the old ones stay in use, or continue a killed run.

    They are computed at the newest snapshot, and topped up after each compaction until they are
    swapped or dropped. Readers do not see them until then.

    `--tables share_holders` is enough for another country or condition, `--tables positions` if the
    choice of a key's latest record changed; if decoding changed, rebuild all tables.
    """
    from shardpost.rebuilds.model.rebuild import Source
    from shardpost.rebuilds.rebuild_job import tables_of

    more = {"source": Source(source), "tables": tables_of(tables)}
    return carry_out_request("start", by, country=country, holds=holds, **more)


@rebuild_command.command("diff")
@AS_JSON
def diff_command() -> int:
    """Compare the rebuilt tables with the old ones, key by key, at the same offsets.

    Later records are added to the rebuilt tables first. Counts the open positions, holders,
    contacts, exchanges and rejected records that are equal, changed, or only on one side, and
    prints samples: positions and holders with their records. After a swap, both are compared as
    they were at the swap. Exit code 3: something differs.
    """
    from shardpost.delta.query import table_errors
    from shardpost.rebuilds.registry import compare_open, needs_top_up

    installation = opened()
    with table_errors():
        if needs_top_up(installation.tables):
            code, result = submit_request("top-up", "diff")
            if result is None:
                return code
        found = compare_open(installation.tables, installation.kafka, datetime.now(UTC))
    print_document(found, found.lines)
    return DONE if found.is_none else NEEDS_ATTENTION


def confirm_request(question: str) -> None:
    """Ask before a request that cannot be undone, below the rebuild that it is about."""
    from shardpost.delta import snapshots
    from shardpost.delta.query import table_errors
    from shardpost.rebuilds import registry
    from shardpost.rebuilds.registry import described

    def plan() -> list[str]:
        installation = opened()
        with table_errors():
            rebuild = registry.require_current(installation.tables)
            return [rebuild_text(described(rebuild, snapshots.current(installation.tables)))]

    confirm(question, plan)


@rebuild_command.command("swap")
@click.option(
    "--max-changed",
    metavar="SHARE",
    help="Only if at most this share of positions, holders, contacts and exchanges differs, such"
    " as 1%.",
)
@WHY
@YES
@BY
@AS_JSON
def swap_command(max_changed: str | None, why: str, by: str) -> int:
    """Put the rebuilt tables in use, in one commit, and publish the holders whose list changed.

    The former tables are kept for a rollback. A mail run in progress keeps the snapshot that it
    froze. Exit code 3: more differs than --max-changed allows; nothing was swapped.
    """
    share = None if max_changed is None else parse_share(max_changed)
    confirm_request("Put these tables in use, and publish the holders whose list changed?")
    return carry_out_request("swap", by, why=why, max_changed=share)


@rebuild_command.command("rollback")
@WHY
@YES
@BY
@AS_JSON
def rollback_command(why: str, by: str) -> int:
    """Put the former tables back in use, with all later records, in one commit."""
    confirm_request(
        "Put the tables from before the swap back in use, and publish the holders whose list"
        " changed?"
    )
    return carry_out_request("rollback", by, why=why)


@rebuild_command.command("drop")
@WHY
@YES
@BY
@AS_JSON
def drop_command(why: str, by: str) -> None:
    """Drop the tables that are not in use.

    Before a swap these are the rebuilt tables. After it they are the old ones, and a rollback is
    no longer possible. Files that kept snapshots use remain until those snapshots expire
    (`shardpost tables maintain`).
    """
    from shardpost.delta.query import table_errors
    from shardpost.rebuilds.drop import drop

    confirm_request("Drop the tables of this rebuild that are not in use?")
    with table_errors():
        rebuild, removed = drop(opened(), by, why)
    gone = ", ".join(removed) or "files that kept snapshots use remain until those snapshots expire"
    print_document(
        {"rebuild": rebuild.number, "removed": removed},
        lambda: f"rebuild {rebuild.number} is dropped: {gone}",
    )


@rebuild_command.command("list")
@AS_JSON
def list_command() -> None:
    """Print all rebuilds: their tables, their state, and how far behind they are."""
    from shardpost.delta.query import table_errors
    from shardpost.rebuilds.registry import list_described

    with table_errors():
        found = list_described(opened().tables)
    print_document(found, lambda: "\n".join(map(rebuild_text, found)) or "no rebuild yet")
