"""The tables: their sizes, the snapshots that can be asked, and rebuilds beside those in use."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import Response

from shardpost.delta.query import table_errors
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import UsageError
from shardpost.page import access
from shardpost.page.access import REBUILDS, TABLES, acts, sees
from shardpost.page.rendering import Link, Listing, page_of
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest, Reason
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.difference import TITLES
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.registry import compare_open, list_described, needs_top_up
from shardpost.wording import in_bytes, parse_share

router = APIRouter(prefix="/tables", dependencies=[sees(TABLES)])
SIZES = ("table", "rows", "files", "bytes", "log bytes", "versions", "kept for")
SNAPSHOTS = (
    *("snapshot", "committed", "up to date at", "country"),
    *("positions", "holders", "rejected", "records read", "expires within a day"),
)
NO_TABLE = "No table yet: run the DAG compact_positions."


@router.get("")
def sizes(visit: CurrentRequest) -> Response:
    """Show the size of each table, and what keeps its files."""
    from shardpost.maintenance.stored_tables import table_sizes

    tables = visit.installation.tables
    found = table_sizes(tables)
    found_rows = [
        (one.table, one.rows, one.files, one.bytes, one.log_bytes, one.versions, one.kept_for)
        for one in found
    ]
    return visit.answer(
        "tables.html",
        found,
        Listing(SIZES, found_rows, NO_TABLE),
        total=in_bytes(sum(one.bytes + one.log_bytes for one in found)),
        where=tables.root,
    )


@router.get("/snapshots")
def snapshots(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show the snapshots that can be asked, the newest first."""
    from shardpost import tables

    with table_errors():
        found = tables.snapshots(visit.installation.settings)
        tomorrow = visit.now + timedelta(days=1)
        staying = {one.number for one in tables.snapshots(visit.installation.settings, at=tomorrow)}
    rows = [_snapshot_row(one, one.number not in staying, visit) for one in reversed(found)]
    history_from = found[-1].history_from if found else None
    listing = page_of(rows, SNAPSHOTS, page, NO_TABLE)
    return visit.answer("snapshots.html", found, listing, history_from=history_from)


def _snapshot_row(one: Snapshot, leaves: bool, visit: PageRequest) -> tuple[Any, ...]:
    read, counts = sum(sum(ends.values()) for ends in one.end_offsets.values()), one.counts
    holders = Link(f"{counts.holders:,}", visit.url("holders", snapshot=one.number))
    return (
        *(one.number, one.committed_at, one.looked_at, one.country),
        *(counts.positions, holders, counts.rejected, read, leaves),
    )


@router.get("/rebuilds")
def rebuilds(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show all rebuilds, and what can be done with the one whose tables are there."""
    with table_errors():
        found = list_described(visit.installation.tables)
    rows = [_rebuild_row(one) for one in reversed(found)]
    columns = ("rebuild", "state", "country", "from", "tables", "started", "by", "behind")
    empty = "No rebuild yet: run the DAG rebuild_tables."
    current = found[-1] if found and found[-1]["state"] not in GONE else None
    listing = page_of(rows, columns, page, empty)
    run = access.unfinished_run(visit.own.id(REBUILDS)) if current else None
    return visit.answer("rebuilds.html", found, listing, current=current, run=run)


GONE = ("dropped", "in use for good")


def _rebuild_row(one: dict[str, Any]) -> tuple[Any, ...]:
    tables, begun = ", ".join(one["tables"].values()), datetime.fromisoformat(one["started_at"])
    more = (one["country"], one["source"], tables, begun, one["started_by"], one["behind"])
    return (one["rebuild"], one["state"], *more)


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
        # Rounded up, so that what was looked at may be swapped.
        most=f"{math.ceil(found.share * 10_000) / 100:g}%",
        run=access.unfinished_run(visit.own.id(REBUILDS)),
    )


@router.post("/rebuilds/swap", dependencies=acts(REBUILDS))
def swap(
    visit: CurrentRequest,
    number: Annotated[int, Form()],
    max_changed: Annotated[str, Form(max_length=20)],
    why: Reason,
) -> Response:
    """Have the DAG put the rebuilt tables in use, if no more differs then than was looked at."""
    parse_share(max_changed)
    with table_errors():
        rebuild = registry.require_current(visit.installation.tables, number)
    source = None if rebuild.source is Source.HISTORY else str(rebuild.source)
    built = {"source": source, "country": rebuild.country, "tables": ",".join(rebuild.tables)}
    return _started(visit, {**built, "max_changed": max_changed, "why": why}, why)


@router.post("/rebuilds/rollback", dependencies=acts(REBUILDS))
def rollback(visit: CurrentRequest, number: Annotated[int, Form()], why: Reason) -> Response:
    """Have the DAG put the tables before the swap in use again."""
    with table_errors():
        registry.require_current(visit.installation.tables, number)
    return _started(visit, {"action": "rollback", "why": why}, why)


def _started(visit: PageRequest, params: dict[str, Any], why: str) -> Response:
    """Start a run of the DAG, unless one is at work; it needs a JVM, which no page starts."""
    dag = visit.own.id(REBUILDS)
    if run := access.unfinished_run(dag):
        raise UsageError(
            f"{run}, a run of the DAG {dag}, has not ended: answer it under Required "
            "Actions, or wait until it ends; nothing was started"
        )
    started = access.start_run(visit.name, dag, params, why)
    return visit.back_to("tables/rebuilds", f"started: {started} of the DAG {dag}")


@router.post("/rebuilds/drop", dependencies=acts(REBUILDS))
def drop(visit: CurrentRequest, number: Annotated[int, Form()], why: Reason) -> Response:
    """Give up the tables of a rebuild that are not in use."""
    from shardpost.rebuilds.drop import drop

    with table_errors():
        rebuild, removed = drop(visit.installation, visit.name, why, number)
    gone = ", ".join(removed) or "files that kept snapshots use remain until those snapshots expire"
    return visit.back_to("tables/rebuilds", f"rebuild {rebuild.number} is dropped: {gone}")
