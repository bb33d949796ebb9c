"""`shardpost compact` and `shardpost import`: inputs into the tables, and lists into inputs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from shardpost.commands import console
from shardpost.delta.snapshot import UnknownExchanges
from shardpost.errors import UsageError, one_line
from shardpost.holders.compaction_job import COMPACT_POSITIONS, RECONCILE_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest, Follow
from shardpost.imports.import_job import IMPORT_POSITIONS, find_source, read_profile
from shardpost.imports.model.plan import notes, summary
from shardpost.imports.model.source import ImportRequest
from shardpost.installation import opened
from shardpost.spark.job import FOLLOWING
from shardpost.spark.submit import submit
from shardpost.values.holding_rule import COUNTRY_UNKNOWN
from shardpost.values.topic_names import INPUTS
from shardpost.wording import counted, parse_share

# Memory grows by some 200 MiB an hour at 1,000 records a second, to 2.8 GiB.
STAYS_FOR = timedelta(hours=8)


@click.command()
@click.option(
    "--reconcile",
    is_flag=True,
    help="In the same run, re-read the input topics and close every key whose latest record they no"
    " longer contain: where tombstones were lost, or a topic was recreated.",
)
@console.COUNTRY_CHANGED
@click.option(
    "--inputs-changed",
    is_flag=True,
    help="Continue although SHARDPOST_INPUTS differs from the last snapshot's: decode new records"
    " by it.",
)
@console.ACCEPT_DROP
@console.TAKE_OVER
@click.option(
    "--follow",
    "follows",
    is_flag=True,
    help="Keep running, and compact again whenever there are new records. Ctrl-C ends it.",
)
@click.option(
    "--for",
    "stay_for",
    type=console.DURATION,
    metavar="TIME",
    help="Stop after this time, such as 55m or 2h; default: 8h.",
)
@click.option(
    "--every",
    type=console.DURATION,
    metavar="TIME",
    help="Minimum time between two compactions; default: 1s.",
)
@console.AS_JSON
@console.grouped(CompactionRequest)
def compact_command(
    asked: CompactionRequest, follows: bool, stay_for: timedelta | None, every: timedelta | None
) -> int:
    """Catch up with the input topics, commit one snapshot, publish the changes.

    Exit code 1, and nothing changed, if a topic was recreated or lost records that
    were not read: see --reconcile. Exit code 2 if the country, or SHARDPOST_INPUTS, differs
    from the last snapshot's.
    Exit code 3, and nothing changed, if tombstones, or good records behind undecodable ones, may
    have been lost: reconcile then; or if open positions
    or holders fall by more than SHARDPOST_MAX_DROP. Exit code 3 also if the run committed, but an
    open transaction hides records of an input, or a client's list of positions exceeds
    `max.message.bytes`.

    With --follow, one warm driver repeats this, within seconds of new records. It waits
    while Kafka cannot be reached, and ends with an exit code as above when a person has to act.
    """
    began = datetime.now(UTC)
    asked = replace(asked, follow=_follow(asked, follows, stay_for, every, began))
    job = RECONCILE_POSITIONS if asked.reconcile else COMPACT_POSITIONS
    code, result = submit(opened(), job, asked)
    if result is None:
        return code
    console.print_document(result, lambda: _compaction_text(result, began))
    for line in _compaction_notes(result):
        click.echo(line, err=True)
    return code


def _follow(
    asked: CompactionRequest,
    follows: bool,
    stay_for: timedelta | None,
    every: timedelta | None,
    now: datetime,
) -> Follow | None:
    given = {"--for": stay_for, "--every": every}
    if not follows and any(time is not None for time in given.values()):
        raise UsageError("--for and --every need --follow")
    if not follows:
        return None
    for name, time in given.items():
        if time == timedelta():
            raise UsageError(f"{name}: expected a time above 0, found 0")
    if asked.reconcile:
        raise UsageError("--reconcile cannot be used with --follow: reconcile first, then follow")
    seconds = every.total_seconds() if every else Follow.every
    return Follow(now + (stay_for or STAYS_FOR), seconds)


def _compaction_notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield what somebody should know; the log above has the details."""
    if result["rejected"]:
        yield f"{counted(result['rejected'], 'record')} rejected"
    if result.get("skipped"):
        yield f"{counted(result['skipped'], 'record')} skipped by `where` of SHARDPOST_INPUTS"
    if result["reconciled"]:
        yield f"{counted(result['reconciled'], 'key')} closed: no longer in the topics"
    if result["uncertain"]:
        yield f"{counted(result['uncertain'], 'key')} may have lost records: see the keys above"
    if result["too_large"]:
        yield (
            f"{result['too_large']} too large for a record of share-holders: see the clients above"
        )
    if result["unknown_exchanges"]:
        unknown = UnknownExchanges.of(result["unknown_exchanges"])
        yield f"{unknown}: they count {COUNTRY_UNKNOWN}; `shardpost doctor` suggests corrections"
    for found in result["open_transactions"]:
        where = f"{found['topic']}[{found['partition']}]@{found['offset']}"
        yield f"open transaction at {where}: later records are not read yet"


def _compaction_text(result: dict[str, Any], began: datetime) -> str:
    snapshot = result["snapshot"]
    if result["changed"]:
        whose = ""
    elif result.get(FOLLOWING, {}).get("turns"):
        whose = " (nothing new since)"
    elif datetime.fromisoformat(snapshot["committed_at"]) >= began:
        whose = " (made by another run meanwhile; nothing new since)"
    else:
        whose = " (nothing new)"
    line = (
        f"snapshot {snapshot['snapshot']}{whose}:"
        f" {counted(snapshot['positions'], 'open position')},"
        f" {counted(snapshot['holders'], 'holder')},"
        f" {counted(result['published'], 'record')} published"
    )
    if not result["rejected"]:
        return line
    return f"{line}, {result['rejected']} rejected (`shardpost letters list` has them)"


@click.command("import")
@click.argument("source")
@click.option(
    "--apply", "is_applied", is_flag=True, help="Write the records; else they are only planned."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Format of the files; by default derived from their names.",
)
@click.option(
    "--into",
    type=click.Choice([*INPUTS]),
    default=INPUTS[0],
    show_default=True,
    help="Topic of the list.",
)
@click.option(
    "--profile",
    metavar="NAME",
    help="How CSV is written: profiles/NAME.yml in SHARDPOST_HOME, or a path.",
)
@click.option(
    "--watermark",
    metavar="COLUMN",
    help="Take only rows from the last applied value of this column on; close nothing.",
)
@click.option("--table", metavar="NAME", help="The table to read, with a JDBC URL.")
@click.option("--query", metavar="SQL", help="Or the query whose result is the list.")
@click.option(
    "--id", "import_id", metavar="ID", help="Import id; by default derived from the list's content."
)
@click.option(
    "--max-closed",
    type=console.Parsed("share", parse_share),
    metavar="SHARE",
    help="Share of the open positions that may close, such as 20%; by default"
    " SHARDPOST_IMPORT_MAX_CLOSED.",
)
@click.option("--up-to", metavar="PLAN", help="Only what a plan showed: the up_to that it printed.")
@console.WHY
@console.BY
@console.AS_JSON
def import_command(
    source: str,
    is_applied: bool,
    format_: str | None,
    profile: str | None,
    table: str | None,
    query: str | None,
    why: str,
    by: str,
    **asked: Any,
) -> int:
    """Compare a full list of positions with what is open, and import it with --apply.

    SOURCE is a CSV, JSON or Parquet file, a folder of such, or a JDBC URL. Only the difference is
    written to `positions`, or to `clients` or `exchanges`: what is new or changed, and a tombstone
    for each open one that the list does not have. Exit code 3, and nothing written: too many would
    close.
    """
    installation = opened()
    own = read_profile(installation.settings.home, profile)
    found = find_source(source, format_, table, query, own)
    request = ImportRequest(found, by, is_applied, why=why or None, **asked)
    code, result = submit(installation, IMPORT_POSITIONS, request)
    if result is None:
        return code
    console.print_document(result, lambda: summary(result))
    for line in () if console.wants_json() else notes(result):
        click.echo(one_line(line), err=True)
    if result["refused"]:
        click.echo(one_line(f"shardpost: refused: {result['refused']}"), err=True)
    return code
