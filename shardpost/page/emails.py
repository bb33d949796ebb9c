"""The weekly e-mails: all weeks, one week by shard and state, and who is in a state."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost.checkout import PACKAGE
from shardpost.delta.query import table_errors
from shardpost.errors import ShardpostError, UsageError
from shardpost.instants import parse_instant
from shardpost.page.access import EMAILS, sees
from shardpost.page.rendering import ROWS_OF_A_PAGE, Link, Listing, page_of
from shardpost.page.request import LISTEN_SECONDS, CurrentRequest, PageNumber, PageRequest, Required
from shardpost.weekly_email.delivery_status import ListedClient, WeekStatus
from shardpost.weekly_email.limits import MailLimits, totals, why_too_late
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import COLUMNS, STATES, ShardStatus, cause_of
from shardpost.weekly_email.week_status import (
    KnownWeek,
    Pace,
    find_week,
    known_weeks,
    pace_of,
    state_document,
    states_of_client,
    week_document,
)

router = APIRouter(prefix="/emails", dependencies=[sees(EMAILS)])

NO_WEEK = (
    "No week was mailed yet. The DAG weekly_email mails each week on Monday; you can start "
    "one below."
)
WEEK_COLUMNS = (
    *("week", "state", *STATES, "recipients"),
    *("as of", "frozen", "country", "snapshot", "note"),
)
# A page of what is going on is loaded again after so many seconds.
REFRESH_SECONDS = 5
# Nor of weeks of which some are not counted yet.
COUNTING_SECONDS = 1
# A week whose ledger has had no record for so long is not being mailed.
QUIET = timedelta(seconds=60)


@router.get("")
def weeks(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show the weeks that were begun, the newest first."""
    known = known_weeks(visit.installation.tables)
    first = (page - 1) * ROWS_OF_A_PAGE
    shown = known[first : first + ROWS_OF_A_PAGE]
    found = visit.memory.ledger.of_weeks(visit.installation, shown, visit.now)
    counts, problems = found.counts, defaultdict[str, list[str]](list)
    for name, why in found.problems.items():
        problems[why].append(name)
    rows = [_week_row(visit, one, counts.get(str(one.week), {})) for one in shown]
    listing = Listing(WEEK_COLUMNS, rows, NO_WEEK, total=len(known), number=page)
    return visit.answer(
        "emails.html",
        listing.records,
        listing,
        states=STATES,
        refresh=COUNTING_SECONDS if found.has_more else None,
        problems=problems,
        week_to_send=str(IsoWeek.last_ended(visit.now)),
        current_week=str(IsoWeek.of(visit.now)),
        templates=visit.installation.settings.mail_templates,
        shipped=PACKAGE / "weekly_email" / "templates",
    )


def _week_row(visit: PageRequest, known: KnownWeek, counts: Mapping[str, int]) -> Sequence[Any]:
    frozen, week = known.frozen, str(known.week)
    note = None
    if known.closed is not None:
        note = f"closed {known.closed.closed_at:%Y-%m-%d}"
    elif frozen is None:
        note = "started early, not frozen"
    elif frozen.audience_erased_at is not None:
        note = f"audience erased {frozen.audience_erased_at:%Y-%m-%d}"
    of_row = (
        (frozen.recipients, frozen.as_of, frozen.frozen_at, frozen.rule.name, frozen.snapshot)
        if frozen
        else (None,) * 5
    )
    states = [counts.get(state) for state in STATES]
    state = _state_of(visit.installation.values(MailLimits), known, counts)
    return (Link(week, visit.url("emails/week", week=week)), state, *states, *of_row, note)


def _state_of(limits: MailLimits, known: KnownWeek, counts: Mapping[str, int]) -> str | None:
    """Return what a person wants to know first of a week; None before it is counted."""
    if known.closed is not None or known.frozen is None:
        return "closed" if known.closed is not None else "early"
    if counts and limits.exceeded("failed", known.week, counts):
        return "failed"
    return next((one for one in ("unknown", "open", "sent") if counts.get(one)), None)


@router.get("/week")
def week(visit: CurrentRequest, week: Required) -> Response:
    """Show one week: its counts by shard, why clients got none, and how quickly it is mailed."""
    found = find_week(visit.installation, IsoWeek.parse(week), visit.now)
    document, audience = week_document(found, visit.memory.ledger.by_shard(found)), found.audience
    counts, late = totals(document["shards"]), document.get("late")
    pace = _running(visit, found) if counts["open"] and not found.closed else None
    limits = visit.installation.values(MailLimits)
    rows = [[shard[name] for name in COLUMNS] for shard in document["shards"]]
    listing = Listing(COLUMNS, rows, "No shards.")
    return visit.answer(
        "emails_week.html",
        document,
        listing,
        week=week,
        found=found,
        counts=counts,
        late=late,
        is_too_late=late
        and isinstance(audience, FrozenWeek)
        and why_too_late(limits, audience, late),
        exceeded={state: limits.exceeded(state, week, counts) for state in document["causes"]},
        incomplete=None if found.closed else found.state.why_incomplete(),
        paused_at=parse_instant(paused["at"]) if (paused := document.get("paused")) else None,
        states=STATES,
        pace=pace,
        refresh=REFRESH_SECONDS if pace else None,
    )


def _running(visit: PageRequest, found: WeekStatus) -> Pace | None:
    """Return the pace of a send that is running; None where none is."""
    pace = pace_of(found, visit.now)
    is_running = pace.newest is not None and visit.now - pace.newest < QUIET
    return pace if is_running else None


@router.get("/clients")
def clients(
    visit: CurrentRequest,
    week: Required,
    state: str = "open",
    reason: str = "",
    client: str = "",
    page: PageNumber = 1,
) -> Response:
    """Show who is in a state; of the unknown, with what a person can decide."""
    if state not in STATES:
        raise UsageError(f"state {state!r}: expected one of {', '.join(STATES)}")
    found = find_week(visit.installation, IsoWeek.parse(week), visit.now)
    document = None
    if visit.request.query_params.get("format") == "json":
        listed = [one for one in found.in_state(state) if one.client.startswith(client)]
        document = state_document(found.week, state, listed)
    listing = _listed(visit, found, state, reason, client, page)
    return visit.answer(
        "emails_clients.html",
        document,
        listing,
        week=week,
        state=state,
        reason=reason,
        client=client,
        states=STATES,
    )


def _listed(
    visit: PageRequest, found: WeekStatus, state: str, reason: str, client: str, page: int
) -> Listing:
    """Return one page of who is in a state; only the shards that are on it are read."""
    columns = ("client", "shard", "reason")
    which = "No client whose id begins so" if client else "No client"
    empty = f"{which} is in state {state}{' for that reason' if reason else ''}."
    if found.closed is not None:
        return Listing(columns, (), found.closed.explanation)
    if reason or client:
        those = [
            one
            for one in found.in_state(state)
            if one.client.startswith(client)
            and (not reason or cause_of(one.reason, one.client) == reason)
        ]
        return page_of([_client_row(visit, found, one) for one in those], columns, page, empty)
    total, shards, skipped = _shards_of_page(visit.memory.ledger.by_shard(found), state, page)
    those = [*found.in_state(state, shards)][skipped : skipped + ROWS_OF_A_PAGE]
    rows = [_client_row(visit, found, one) for one in those]
    return Listing(columns, rows, empty, total=total, number=page)


def _shards_of_page(
    counted: Sequence[ShardStatus], state: str, page: int
) -> tuple[int, list[int], int]:
    """Return how many there are, the shards that a page is of, and how many come before it."""
    first = (page - 1) * ROWS_OF_A_PAGE
    ends = [0, *accumulate(getattr(shard, state) for shard in counted)]
    chosen = {
        shard.shard: max(0, first - start)
        for shard, (start, end) in zip(counted, pairwise(ends), strict=True)
        if end > first and start < first + ROWS_OF_A_PAGE
    }
    return ends[-1], [*chosen], next(iter(chosen.values()), 0)


def _client_row(visit: PageRequest, found: WeekStatus, one: ListedClient) -> Sequence[Any]:
    url = visit.url("emails/mail", week=found.week, client=one.client)
    return (Link(one.client, url), one.shard, one.reason)


# Weeks whose mail a client's page shows.
MOST_OF_CLIENT = 10


NOT_MAILED, CLOSED = "not mailed", "closed"  # what weeks say that know nothing of a client


def weeks_of_client(visit: PageRequest, client: str) -> tuple[Listing, str | None]:
    """Return a client's mail of each of the newest weeks; and why the states are unknown, if so."""
    known: Sequence[KnownWeek] = ()
    states: Mapping[str, tuple[str, str | None]] = {}
    try:
        with table_errors():
            known = known_weeks(visit.installation.tables)[:MOST_OF_CLIENT]
        names = [str(one.week) for one in known if one.closed is None]
        why = visit.installation.kafka.why_nobody_listens(LISTEN_SECONDS) if names else None
        states = states_of_client(visit.installation, client, names) if names and not why else {}
    except ShardpostError as error:
        why = str(error)
    problem = f"The states of these weeks are unknown: {why}" if why else None
    none = None if problem else NOT_MAILED
    rows = [
        (
            Link(week, visit.url("emails/week", week=week)),
            *((CLOSED, None) if one.closed else states.get(week, (none, None))),
            Link("show the mail", visit.url("emails/mail", week=week, client=client)),
        )
        for one in known
        for week in (str(one.week),)
    ]
    return Listing(("week", "state", "reason", "mail"), rows, "No week was mailed yet."), problem
