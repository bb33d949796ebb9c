"""Who holds, in which positions, and which records gave and took them."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost import tables
from shardpost.delta.snapshot import kept_snapshots
from shardpost.holders import queries, who_holds
from shardpost.holders.model.explain import Transition
from shardpost.holders.model.view_tables import CLIENT_EVENTS, POSITION_EVENTS
from shardpost.holders.position_history import (
    MOST_RECORDS,
    PositionHistory,
    RecordOfPosition,
    explanation_of,
    holder_then,
    position_history,
    positions_ever,
    rejected_of,
)
from shardpost.holders.queries import not_covered, pruned, unknown_position, why_no_holder
from shardpost.holders.who_holds import by_shard, counts_over_time
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.partitioning import partition_of
from shardpost.page.access import POSITIONS, sees
from shardpost.page.record_outcomes import record_link
from shardpost.page.rendering import ROWS_OF_A_PAGE, Link, Listing, page_of
from shardpost.page.request import (
    CurrentRequest,
    Instant,
    Number,
    PageNumber,
    PageRequest,
    Required,
    Text,
)
from shardpost.weekly_email.model.week import IsoWeek

router = APIRouter(prefix="/holders", dependencies=[sees(POSITIONS)])

NOBODY = "Nobody holds any. `shardpost compact`, or the DAG compact_positions, reads new positions."
NOBODY_SO = "No client who holds is like that: leave a filter out, or search for another id."
NO_CLIENT_SO = "Of clients who hold, no id begins so."
NO_CHANGE = "No record gave it a position."
# Ids of positions that stand in the row of a client.
LISTED_POSITIONS = 20
# Of clients that had more positions, the records are replayed of so many positions at a time.
MOST_REPLAYED = 1_000
SHOWN_POSITIONS = 200
CHART_POINTS = 1_000


@router.get("")
def holders(
    visit: CurrentRequest,
    search: Text = None,
    shard: Number = None,
    as_of: Instant = None,
    snapshot: Number = None,
    page: PageNumber = 1,
) -> Response:
    """Show who holds, client by client; or whose ids begin with what is searched."""
    at, installation = tables.snapshot(snapshot, visit.installation.settings), visit.installation
    is_whole = visit.request.query_params.get("format") == "json"
    found = who_holds.holders_page(
        installation.tables,
        at,
        who_holds.HoldersQuery(shard=shard, as_of=as_of, begins=search),
        first=(page - 1) * ROWS_OF_A_PAGE,
        most=ROWS_OF_A_PAGE,
        longest=None if is_whole else LISTED_POSITIONS,
    )
    known: dict[str, Any] = {}
    if search is not None:
        known = {
            "client": queries.knows_client(installation.tables, at, search)
            or queries.has_record(installation.tables, at, CLIENT_EVENTS, search),
            "position": queries.has_record(installation.tables, at, POSITION_EVENTS, search),
            "why": why_no_holder(installation.tables, at, search, shard),
        }
    asked = {"search": search, "shard": shard, "as_of": as_of, "snapshot": snapshot}
    rows = [
        (
            _client(visit, one.client, as_of),
            one.shard,
            one.count,
            ", ".join(one.positions) + (", …" if one.count > len(one.positions) else ""),
        )
        for one in found.holders
    ]
    columns = ("client", "shard", "positions", "which")
    empty = NOBODY_SO if shard is not None or as_of else NOBODY
    if search is not None:
        empty = NO_CLIENT_SO
    return visit.answer(
        "holders.html",
        found if is_whole else None,
        Listing(columns, rows, empty, total=found.total, number=page),
        snapshot=at,
        asked=asked,
        known=known,
        not_covered=not_covered(at.as_known(visit.now), as_of),
    )


def _at_snapshot(visit: PageRequest, path: str, **query: object) -> str:
    """Return the address of a page of ours, at the snapshot that this page is asked for."""
    return visit.url(path, **query, snapshot=visit.request.query_params.get("snapshot"))


@router.get("/shards")
def shards(visit: CurrentRequest, snapshot: Number = None) -> Response:
    """Show how the holders are spread over the shards."""
    at = tables.snapshot(snapshot, visit.installation.settings)
    found = by_shard(visit.installation.tables, at)
    rows = [
        (
            Link(str(one.shard), _at_snapshot(visit, "holders", shard=str(one.shard))),
            one.clients,
            one.positions,
            one.most,
        )
        for one in found
    ]
    columns = ("shard", "clients", "positions", "most of one client")
    numbers = [one.shard for one in found]
    bars = [
        {"type": "bar", "name": name, "x": numbers, "y": [getattr(one, name) for one in found]}
        for name in ("clients", "positions")
    ]
    axis: dict[str, Any] = {"title": {"text": "shard"}, "tickformat": "d"}
    figure = {"data": bars, "layout": {"xaxis": axis}}
    return visit.answer(
        "holders_shards.html", found, Listing(columns, rows, NOBODY), snapshot=at, figure=figure
    )


@router.get("/history")
def history(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show how many held at each snapshot."""
    found = counts_over_time(visit.installation.tables)
    committed = [(one["snapshot"], one["committed_at"]) for one in found]
    kept = kept_snapshots(committed, visit.now, visit.installation.tables.snapshot_days)
    names = ("positions", "holders", "held", "rejected")
    rows = [
        (_snapshot(visit, one["snapshot"], kept), one["committed_at"], *(one[n] for n in names))
        for one in reversed(found)
    ]
    columns = ("snapshot", "committed", "open positions", "holders", "held", "rejected in all")
    shown = found[:: -(len(found) // CHART_POINTS + 1)]
    times = [one["committed_at"].isoformat() for one in shown]
    lines = [
        {"type": "scatter", "mode": "lines", "name": name, "x": times, "y": [o[key] for o in shown]}
        for key, name in (("holders", "holders"), ("held", "positions held"))
    ]
    listing = page_of(
        rows,
        columns,
        page,
        "No snapshot yet: `shardpost compact`, or the DAG compact_positions, makes the first.",
    )
    return visit.answer("holders_history.html", found, listing, figure={"data": lines})


def _snapshot(visit: PageRequest, number: int, kept: set[int]) -> Link | int:
    return Link(str(number), visit.url("holders", snapshot=number)) if number in kept else number


@router.get("/client")
def client(
    visit: CurrentRequest,
    client: Required,
    as_of: Instant = None,
    snapshot: Number = None,
    page: PageNumber = 1,
) -> Response:
    """Show one client's positions, and the timeline of the records that put or took them."""
    at, installation = tables.snapshot(snapshot, visit.installation.settings), visit.installation
    held = who_holds.query_holders(
        installation.tables, at, who_holds.HoldersQuery(client, None, as_of)
    )
    ever = positions_ever(installation.tables, at, client)
    is_whole = len(ever) <= MOST_REPLAYED
    replayed = ever if is_whole else ever[(page - 1) * ROWS_OF_A_PAGE : page * ROWS_OF_A_PAGE]
    changes = explanation_of(installation, at, client, replayed)
    rejected = [
        (one.timestamp, _position(visit, one.position), one.reason, _record(visit, one))
        for one in rejected_of(installation, at, replayed)
    ]
    why = None if held else queries.why_no_holder(installation.tables, at, client)
    if is_whole:
        newest = sorted(changes, key=lambda change: change.timestamp)[::-1]
        timeline = page_of([_change(visit, one) for one in newest], CHANGES, page, NO_CHANGE)
    else:  # of each position what was done to it last
        last = {change.position: change for change in changes}
        rows = [_change(visit, one) for one in last.values()]
        timeline = Listing(CHANGES, rows, NO_CHANGE, total=len(ever), number=page)
    return visit.answer(
        "holders_client.html",
        {"holders": held, "explain": changes},
        timeline,
        client=client,
        positions=held.get(client, []),
        shard=partition_of(client, at.shards),
        ever=len(ever),
        last_week=str(IsoWeek.last_ended(visit.now)),
        is_whole=is_whole,
        why=why,
        rejected=Listing(("time", "position", "why it was rejected", "record"), rejected),
        snapshot=at,
        asked={"client": client, "as_of": as_of, "snapshot": snapshot},
        most=SHOWN_POSITIONS,
        notes_of=[queries.not_covered(at.as_known(visit.now), as_of), queries.pruned(at)],
    )


CHANGES = ("time", "change", "position", "why", "record")


def _change(visit: PageRequest, change: Transition) -> tuple[object, ...]:
    position, record = _position(visit, change.position), _record(visit, change)
    return change.timestamp, str(change.change), position, change.why, record


def _record(visit: PageRequest, one: Transition | RecordOfPosition) -> Link | str:
    return record_link(visit, *one.coordinates)


def _position(visit: PageRequest, position: str) -> Link:
    return Link(position, _at_snapshot(visit, "holders/position", position=position))


@router.get("/position")
def position(
    visit: CurrentRequest,
    position: Required,
    as_of: Instant = None,
    snapshot: Number = None,
    page: PageNumber = 1,
) -> Response:
    """Show who has a position, or had it, why it counts or not, and all its records."""
    at = tables.snapshot(snapshot, visit.installation.settings)
    found = position_history(visit.installation, at, position)
    notes = [not_covered(at.as_known(visit.now), as_of), pruned(at)]
    if not found.is_whole:
        notes.append(f"It has more records than {MOST_RECORDS:,}: these are the newest")
    standing = found.standing
    owner = standing.client if standing else None
    held_then = None
    if as_of and (then := holder_then(visit.installation.tables, at, position, as_of)):
        held_then = _client(visit, then, as_of)
    return visit.answer(
        "holders_position.html",
        found,
        page_of(_records(visit, found), RECORDS, page, unknown_position(at, position, found.why)),
        position=position,
        standing=standing,
        why=found.why,
        holder=_client(visit, owner) if owner else None,
        held_then=held_then or "nobody, or it did not count",
        snapshot=at,
        asked={"as_of": as_of, "snapshot": snapshot},
        notes_of=notes,
    )


def _client(visit: PageRequest, client: str, as_of: datetime | None = None) -> Link:
    at = as_of and as_of.isoformat()
    return Link(client, _at_snapshot(visit, "holders/client", client=client, as_of=at))


RECORDS = ("time", "what it did", "client", "exchange", "ticker", "amount", "snapshot", "record")


def _records(visit: PageRequest, found: PositionHistory) -> list[tuple[object, ...]]:
    """Return rows of all records of a position, and of those of exchanges that changed it."""
    effects: dict[Coordinates, list[str]] = {}
    for change in found.changes:
        effects.setdefault(change.coordinates, []).append(f"{change.change}: {change.client}")
    own = {one.coordinates for one in found.records}
    timed: list[tuple[datetime, tuple[object, ...]]] = []
    for one in found.records:
        said = "; ".join(effects.get(one.coordinates, ()))
        said = said or "nothing: it changed nobody's positions"
        if one.reason is not None:
            said = f"rejected: {one.reason}"
        told = (one.client, one.exchange, one.ticker, one.amount, one.snapshot)
        timed.append((one.timestamp, (one.timestamp, said, *told, _record(visit, one))))
    others = {one.coordinates: one for one in found.changes if one.coordinates not in own}
    for at, change in others.items():
        said = f"{'; '.join(effects[at])} ({change.why})"
        row = (change.timestamp, said, *[None] * 5, _record(visit, change))
        timed.append((change.timestamp, row))
    return [row for _, row in sorted(timed, key=lambda one: one[0], reverse=True)]
