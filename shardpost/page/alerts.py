"""What is firing: since when, who was told of it, its page of the runbook, and its silence."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from fastapi.responses import Response

from shardpost.alerts.model.alert import EVENT, Firing, Silence
from shardpost.errors import UsageError
from shardpost.instants import parse_duration
from shardpost.page.access import KAFKA, acts, sees
from shardpost.page.rendering import Asked, Link, Listing, Reason, Visit, page_of

router = APIRouter(prefix="/alerts", dependencies=[sees(KAFKA)])
COLUMNS = ("alert", "severity", "since", "over since", "told last", "silenced until", "found")
NOTHING = "Nothing is firing, by the last look of the DAG watch_kafka."


def firing(visit: Visit) -> list[Firing]:
    """Return what is known to fire: what is over or silenced last, the others worst first."""
    from shardpost.alerts.history import list_firing
    from shardpost.delta.query import table_errors

    with table_errors():
        return sorted(list_firing(visit.settings), key=lambda one: _urgency(one, visit))


def needs_a_person(one: Firing, visit: Visit) -> bool:
    """Tell whether somebody has to look at it now."""
    return one.ended_at is None and not one.is_silenced(visit.now)


def _urgency(one: Firing, visit: Visit) -> tuple[bool, bool, int, Any]:
    is_event = one.condition.source == EVENT
    return not needs_a_person(one, visit), is_event, one.condition.severity.rank, one.since


@router.get("")
def alerts(visit: Asked, page: Annotated[int, Query(ge=1)] = 1) -> Response:
    """Show what is firing, worst first."""
    found = firing(visit)
    listing = page_of([_row(one, visit) for one in found], COLUMNS, page, NOTHING)
    return visit.answer("alerts.html", found, listing, channels=_channels(visit))


def _row(one: Firing, visit: Visit) -> tuple[Any, ...]:
    name, told = one.condition.name, [one.at for one in one.told.values()]
    silenced = one.silenced_until if one.is_silenced(visit.now) else None
    return (
        Link(name, visit.url("alerts/one", key=name)),
        str(one.condition.severity),
        one.since,
        one.ended_at,
        max(told, default=None),
        silenced,
        one.condition.text,
    )


def _channels(visit: Visit) -> list[str]:
    """Return the names of the channels, which have no secrets."""
    from shardpost.alerts.channels import channels

    return [one.name for one in channels(visit.settings)]


@router.get("/one")
def alert(visit: Asked, key: str) -> Response:
    """Show one alert, who was told, and what silences it."""
    found = _require(firing(visit), key)
    told = [(name, told.at, str(told.severity)) for name, told in sorted(found.told.items())]
    listing = Listing(("channel", "told last", "as"), told, "Nobody was told yet.")
    runbook = f"{visit.settings.runbook}{found.condition.rule}"
    return visit.answer(
        "alert.html",
        found,
        listing,
        one=found,
        is_event=found.condition.source == EVENT,
        is_silenced=found.is_silenced(visit.now),
        runbook=Link(runbook, runbook) if runbook.startswith(("http://", "https://")) else runbook,
    )


def _require(known: Iterable[Firing], key: str) -> Firing:
    found = next((one for one in known if one.condition.name == key), None)
    if found is None:
        raise UsageError(f"{key} is not firing any more: the page Alerts lists what is")
    return found


Key = Annotated[str, Form()]


@router.post("/silence", dependencies=acts(KAFKA))
def silence(
    visit: Asked, key: Key, duration: Annotated[str, Form(max_length=20)], why: Reason
) -> Response:
    """Send nothing of an alert for a time, but its end, or that it became worse."""
    return _silence(visit, key, parse_duration(duration.strip()), why)


@router.post("/unsilence", dependencies=acts(KAFKA))
def unsilence(visit: Asked, key: Key, why: Reason) -> Response:
    """End a silence."""
    return _silence(visit, key, timedelta(), why)


def _silence(visit: Visit, key: str, duration: timedelta, why: str) -> Response:
    from shardpost.watch.silences import silence, silence_text

    wanted = Silence(visit.now + duration, visit.name, why)
    found = silence(visit.settings, key, wanted, visit.now)
    return visit.back_to("alerts", silence_text(found, visit.now))
