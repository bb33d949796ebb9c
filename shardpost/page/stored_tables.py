"""The tables: their sizes, the snapshots that can be asked, and rebuilds beside those in use."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost import tables
from shardpost.delta.query import table_errors
from shardpost.delta.snapshot import Snapshot
from shardpost.page import access
from shardpost.page.rendering import Link, Listing, page_of
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest
from shardpost.rebuilds.model.difference import TITLES
from shardpost.rebuilds.registry import compare_open, list_described, needs_top_up
from shardpost.wording import in_bytes

router = APIRouter(prefix="/tables", dependencies=[access.sees(access.TABLES)])
SIZES = ("table", "rows", "files", "bytes", "log bytes", "versions", "kept for")
SNAPSHOTS = (
    *("snapshot", "committed", "up to date at", "who holds"),
    *("positions", "holders", "rejected", "records read"),
)
NO_TABLE = "No table yet: run the DAG compact_positions."


@router.get("")
def sizes(visit: CurrentRequest) -> Response:
    """Show the size of each table, and what keeps its files."""
    from shardpost.maintenance.stored_tables import table_sizes

    found = table_sizes(visit.installation.tables)
    found_rows = [
        (one.table, one.rows, one.files, one.bytes, one.log_bytes, one.versions, one.kept_for)
        for one in found
    ]
    return visit.answer(
        "tables.html",
        found,
        Listing(SIZES, found_rows, NO_TABLE),
        total=in_bytes(sum(one.bytes + one.log_bytes for one in found)),
        where=visit.installation.tables.root,
    )


@router.get("/snapshots")
def snapshots(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show the snapshots that can be asked, the newest first."""
    with table_errors():
        found = tables.snapshots(visit.installation.settings)
    rows = [_snapshot_row(one, visit) for one in reversed(found)]
    history_from = found[-1].history_from if found else None
    listing = page_of(rows, SNAPSHOTS, page, NO_TABLE)
    return visit.answer("snapshots.html", found, listing, history_from=history_from)


def _snapshot_row(one: Snapshot, visit: PageRequest) -> tuple[Any, ...]:
    read, counts = sum(sum(ends.values()) for ends in one.end_offsets.values()), one.counts
    holders = Link(f"{counts.holders:,}", visit.url("holders", snapshot=one.number))
    return (
        *(one.number, one.committed_at, one.looked_at, one.rule.name),
        *(counts.positions, holders, counts.rejected, read),
    )


@router.get("/rebuilds")
def rebuilds(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show all rebuilds, and the one whose tables are there."""
    with table_errors():
        found = list_described(visit.installation.tables)
    rows = [_rebuild_row(one) for one in reversed(found)]
    columns = ("rebuild", "state", "who holds", "from", "tables", "started", "by", "behind")
    empty = "No rebuild yet: run the DAG rebuild_tables."
    current = found[-1] if found and found[-1]["state"] not in GONE else None
    listing = page_of(rows, columns, page, empty)
    run = access.unfinished_run(visit.own.id(access.REBUILDS)) if current else None
    return visit.answer("rebuilds.html", found, listing, current=current, run=run)


GONE = ("dropped", "in use for good")


def _rebuild_row(one: dict[str, Any]) -> tuple[Any, ...]:
    made = (one["holds"] or one["country"], one["source"], ", ".join(one["tables"].values()))
    begun = (datetime.fromisoformat(one["started_at"]), one["started_by"])
    return (one["rebuild"], one["state"], *made, *begun, one["behind"])


DIFFERENCES = ("keys", "equal", "changed", "only old", "only new", "differ")


@router.get("/diff")
def diff(visit: CurrentRequest) -> Response:
    """Compare the rebuilt tables with the old ones, key by key."""
    with table_errors():
        found = compare_open(visit.installation.tables, visit.installation.kafka, visit.now)
        is_behind = needs_top_up(visit.installation.tables)
        current = list_described(visit.installation.tables)[-1]
    if not visit.sees_clients:
        found = replace(found, samples=[])
    rows = [
        (TITLES[name], *vars(one).values(), f"{one.share:.2%}")
        for name, one in found.counts.items()
    ]
    return visit.answer(
        "rebuild_diff.html",
        found,
        Listing(DIFFERENCES, rows),
        is_behind=is_behind,
        current=current,
        run=access.unfinished_run(visit.own.id(access.REBUILDS)),
    )
