"""Who holds what, and which records added or removed it."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost import tables
from shardpost.dead_letters.model.letters import letter_id
from shardpost.delta.snapshot import Snapshot
from shardpost.holders import listed_holders, position_history, queries
from shardpost.holders.model.explain import Change, PositionRecord, Transition
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.kafka.records import partition_of
from shardpost.page.access import EMAILS, POSITIONS, sees
from shardpost.page.emails import CLOSED, NOT_MAILED, weeks_of_client
from shardpost.page.record_outcomes import letter_link, record_link, states_of_letters
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
from shardpost.page.value_layout import indented
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import json_text

router = APIRouter(prefix="/holders", dependencies=[sees(POSITIONS)])

NOBODY = (
    "No client holds any. `shardpost compact`, or the DAG compact_positions, reads new positions."
)
NO_MATCH = "No client matches: clear a filter."
NO_CHANGE = "No record gave this client a position."
# Positions that stand in the row of a client.
LISTED_POSITIONS = 5
# Of clients that had more positions, the records are replayed of so many positions at a time.
MOST_REPLAYED = 1_000


@router.get("")
def holders(
    visit: CurrentRequest,
    search: Text = None,
    shard: Number = None,
    as_of: Instant = None,
    snapshot: Number = None,
    page: PageNumber = 1,
) -> Response:
    """Show who holds, client by client; or the clients that a search finds."""
    at, installation = tables.snapshot(snapshot, visit.installation.settings), visit.installation
    form = visit.request.query_params.get("format")
    found = listed_holders.holders_page(
        installation.tables,
        at,
        listed_holders.HoldersQuery(None, shard, as_of, search, by_contact=_sees_contacts(visit)),
        first=(page - 1) * ROWS_OF_A_PAGE,
        most=ROWS_OF_A_PAGE,
        longest=None if form in ("json", "csv") else LISTED_POSITIONS,
    )
    if form == "json":
        return visit.answer("holders.html", found)
    why, is_position = None, False
    if search is not None:
        is_position = queries.has_record(installation.tables, at, POSITION_EVENTS, search)
        if not found.total:
            why = queries.why_no_holder(installation.tables, at, search, shard)
    contacts = _contacts(visit, at, [one.client for one in found.holders])
    ids = [position for one in found.holders for position in one.positions]
    terms = listed_holders.terms_of(installation.tables, at, ids, as_of)
    rows = [
        (
            _client(visit, one.client, as_of),
            *(contacts.get(one.client, {}).get(name) for name in ("name", "email")),
            one.shard,
            one.count,
            "; ".join(
                f"{own}: {_said(terms[own])}" if own in terms else own for own in one.positions
            ),
        )
        for one in found.holders
    ]
    columns = ("client", "name", "e-mail", "shard", "positions", "which")
    empty = NOBODY if shard is None and not (as_of or search) else NO_MATCH
    return visit.answer(
        "holders.html",
        None,
        Listing(columns, rows, empty, total=found.total, number=page),
        found=found,
        terms=terms,
        most_found=listed_holders.MOST_FOUND,
        sees_contacts=_sees_contacts(visit),
        snapshot=at,
        asked={"search": search, "shard": shard, "as_of": as_of, "snapshot": snapshot},
        is_position=is_position,
        why=why,
        not_covered=queries.not_covered(at.as_known(visit.now), as_of),
    )


def _sees_contacts(visit: PageRequest) -> bool:
    """Tell whether names and e-mails may be shown, as records of `clients` are."""
    return visit.may_see(EMAILS)


def _said(terms: Mapping[str, Any]) -> str:
    return "{amount} {ticker} at {exchange}".format(**terms)


def _contacts(
    visit: PageRequest, at: Snapshot, clients: Collection[str]
) -> dict[str, dict[str, Any]]:
    shown = clients if _sees_contacts(visit) else ()
    return listed_holders.contacts_of(visit.installation.tables, at, shown)


def _at_snapshot(visit: PageRequest, path: str, **query: object) -> str:
    """Return the address of a page of ours, at the snapshot that this page is asked for."""
    return visit.url(path, **query, snapshot=visit.request.query_params.get("snapshot"))


@router.get("/client")
def client(
    visit: CurrentRequest,
    client: Required,
    as_of: Instant = None,
    snapshot: Number = None,
    page: PageNumber = 1,
) -> Response:
    """Show one client's positions, and the timeline of the records that changed them."""
    at, installation = tables.snapshot(snapshot, visit.installation.settings), visit.installation
    held = listed_holders.query_holders(
        installation.tables, at, listed_holders.HoldersQuery(client, None, as_of)
    )
    positions = held.get(client, [])
    shown = positions[:ROWS_OF_A_PAGE]
    terms = listed_holders.terms_of(installation.tables, at, shown, as_of, client)
    ever = position_history.positions_ever(installation.tables, at, client)
    is_whole = len(ever) <= MOST_REPLAYED
    replayed = ever if is_whole else ever[(page - 1) * ROWS_OF_A_PAGE : page * ROWS_OF_A_PAGE]
    changes = position_history.explanation_of(installation, at, client, replayed)
    if is_whole:
        newest = sorted(changes, key=lambda change: change.timestamp)[::-1]
        timeline = page_of([_step(visit, one) for one in newest], STEPS, page, NO_CHANGE)
    else:  # of each position what was done to it last
        rows = [_step(visit, one) for one in {one.position: one for one in changes}.values()]
        timeline = Listing(STEPS, rows, NO_CHANGE, total=len(ever), number=page)
    rejected = position_history.rejected_of(installation, at, replayed)
    letters = _letter_states(visit, rejected)
    why = None if held else queries.why_no_holder(installation.tables, at, client)
    weeks, problem = weeks_of_client(visit, client) if _sees_contacts(visit) else (None, None)
    states = {row[1] for row in weeks.rows} if weeks else set()
    return visit.answer(
        "holders_client.html",
        {"holders": held, "explain": [one for one in changes if one.change != Change.AMENDED]},
        timeline,
        client=client,
        contact=_contacts(visit, at, [client]).get(client),
        sees_contacts=_sees_contacts(visit),
        held=len(positions),
        positions=Listing(
            ("position", "amount", "ticker", "exchange"),
            [(_position(visit, one), *_values(terms.get(one))) for one in shown],
        ),
        shard=partition_of(client, at.shards),
        ever=len(ever),
        current_week=str(IsoWeek.of(visit.now)),
        weeks=weeks,
        weeks_problem=problem,
        was_mailed=bool(states - {NOT_MAILED, CLOSED, None}),  # perhaps its history was pruned
        topic=installation.topic,
        indented=indented,
        is_whole=is_whole,
        why=why,
        rejected=Listing(STEPS, [_step(visit, one, one, letters) for one in rejected]),
        snapshot=at,
        asked={"client": client, "as_of": as_of, "snapshot": snapshot},
        notes_of=[queries.not_covered(at.as_known(visit.now), as_of), queries.pruned(at)],
    )


# Rows of a timeline: what a record did to a position, or that it did nothing.
STEPS = (
    *("time", "change", "position", "client", "amount", "ticker", "exchange"),
    *("before", "why", "record", "letter", "json"),
)


def _step(
    visit: PageRequest,
    one: Transition | PositionRecord,
    record: PositionRecord | None = None,
    letters: Mapping[str, str] | None = None,
) -> tuple[object, ...]:
    """Return the step of a change, or of a record that changed nothing.

    `record` is the position's record in its place, if that is no exchange's; `letters` has the
    states of letters.
    """
    letter, before = None, None
    own: PositionRecord | None
    if isinstance(one, Transition):
        change, why, own = str(one.change), one.why, one.own
        before = one.before and _said(vars(one.before))
    else:
        is_rejected, own = one.kind is RecordKind.REJECTED, one
        change, why = "rejected" if is_rejected else "no change", one.reason or ""
        if is_rejected and one.coordinates.topic == visit.installation.topic("positions"):
            name = _letter(one)
            state = (letters or {}).get(name)
            letter = letter_link(visit, name, f"its letter: {state}" if state else "its letter")
    return (
        one.timestamp,
        change,
        _position(visit, one.position),
        _client(visit, one.client) if one.client else None,
        *_values(vars(own) if own else None),
        *(before, why, record_link(visit, *one.coordinates), letter),
        json_text((record or one).as_json()),
    )


def _letter(one: PositionRecord) -> str:
    """Return the id of the letter of a rejected record."""
    return letter_id(one.coordinates, int(one.timestamp.timestamp() * 1000))


def _letter_states(visit: PageRequest, records: Iterable[PositionRecord]) -> dict[str, str]:
    rejected = [_letter(one) for one in records if one.kind is RecordKind.REJECTED]
    return states_of_letters(visit, rejected[: position_history.MOST_REJECTED])


def _values(terms: Mapping[str, Any] | None) -> tuple[str | None, ...]:
    return tuple(terms[name] if terms else None for name in ("amount", "ticker", "exchange"))


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
    found = position_history.position_history(visit.installation, at, position)
    notes = [queries.not_covered(at.as_known(visit.now), as_of), queries.pruned(at)]
    if not found.is_whole:
        notes.append(
            f"It has more records than {position_history.MOST_RECORDS:,}: these are the newest"
        )
    owner = found.replay.owner
    then = as_of and listed_holders.terms_of(visit.installation.tables, at, [position], as_of)
    empty = queries.unknown_position(at, position, found.why)
    return visit.answer(
        "holders_position.html",
        found,
        page_of(_steps(visit, found), STEPS, page, empty),
        position=position,
        counts=found.replay.holder is not None,
        latest=found.latest,
        why=found.why,
        holder=_client(visit, owner) if owner else None,
        contact=_contacts(visit, at, [owner]).get(owner) if owner else None,
        then=then.get(position) if then else None,
        snapshot=at,
        asked={"as_of": as_of, "snapshot": snapshot},
        notes_of=notes,
        topic=visit.installation.topic,
        indented=indented,
    )


def _client(visit: PageRequest, client: str, as_of: datetime | None = None) -> Link:
    at = as_of and as_of.isoformat()
    return Link(client, _at_snapshot(visit, "holders/client", client=client, as_of=at))


def _steps(visit: PageRequest, found: position_history.PositionHistory) -> list[tuple[object, ...]]:
    """Return what all records of a position did, and those of exchanges, the newest first."""
    records = {one.coordinates: one for one in found.records}
    changed = {one.coordinates for one in found.replay.changes}
    own: list[Transition | PositionRecord] = [*found.replay.changes]
    own += [one for at, one in records.items() if at not in changed]
    newest = sorted(own, key=lambda one: one.timestamp)[::-1]
    letters = _letter_states(visit, found.records)
    return [_step(visit, one, records.get(one.coordinates), letters) for one in newest]
