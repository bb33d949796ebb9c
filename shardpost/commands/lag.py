"""`shardpost lag`: how far readers are behind, and when they lose data."""

import gc
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.commands.console import AS_JSON, print_document, text_table
from shardpost.errors import ShardpostError
from shardpost.wording import duration_text

if TYPE_CHECKING:
    from shardpost.lag.model.report import LagRow

HEADING = ("time to loss", "group", "partition", "records", "time behind", "reason")


@click.command()
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Only this group; repeatable."
)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; repeatable."
)
@AS_JSON
def lag_command(groups: Sequence[str], topics: Sequence[str], as_json: bool) -> int:
    """Print for every reader and partition what is unread, and when that is lost.

    Readers are all consumer groups, the compaction and the table of dead letters. Exit code 3 if
    data is lost already, or will be within SHARDPOST_LOSS_WARNING seconds; 1 if not everything
    could be asked for.
    """
    from shardpost.lag.measure import measure
    from shardpost.lag.model.report import Selection
    from shardpost.settings import load

    settings = load()
    gc.disable()  # hundreds of thousands of rows, and then the process ends
    found = measure(settings, datetime.now(UTC), Selection(groups, topics))
    if (groups or topics) and not found.rows and not found.problems:
        raise ShardpostError(
            f"{', '.join((*groups, *topics))}: expected a group that has committed an offset, and a"
            " topic that it reads; found none: `shardpost lag` lists all"
        )
    for problem in found.problems:
        click.echo(f"shardpost: not known: {problem}", err=True)
    if found.left_out:
        names = ", ".join(found.left_out)
        click.echo(f"without committed offsets (share groups, Connect workers): {names}", err=True)
    print_document(found.rows, lambda: _lag_text(found.rows), as_json=as_json)
    return found.exit_code(settings.loss_warning)


def _lag_text(rows: "Sequence[LagRow]") -> str:
    losing = [row for row in rows if _is_reported(row)]
    safe = [row for row in rows if not _is_reported(row)]
    told = [text_table(HEADING, [_cells(row) for row in losing])] if losing else []
    return "\n".join([*told, *_summary(safe)]) or "no reader has committed an offset"


def _is_reported(row: "LagRow") -> bool:
    return row.seconds_to_loss is not None or row.end is None


def _cells(row: "LagRow") -> tuple[str, ...]:
    where = f"{row.topic}[{row.partition}]"
    records = "?" if row.records_behind is None else str(row.records_behind)
    times = (_span(row.seconds_to_loss), _span(row.seconds_behind))
    return (times[0], row.group, where, records, times[1], row.reason)


def _span(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _summary(safe: "Sequence[LagRow]") -> list[str]:
    """Return a line for each group with partitions that are safe from loss."""
    found: dict[str, list[LagRow]] = {}
    for row in safe:
        found.setdefault(row.group, []).append(row)
    return [_line(group, rows) for group, rows in sorted(found.items())]


def _line(group: str, rows: "Sequence[LagRow]") -> str:
    behind = sum(row.records_behind or 0 for row in rows)
    longest = max((row.seconds_behind or 0 for row in rows), default=0)
    count = f"{len(rows)} partition{'s' if len(rows) > 1 else ''}"
    late = f", {behind} records and {_span(longest)} behind" if behind else ""
    return f"{group}: {count} safe{late}"
