"""What is firing: since when, who was notified, its section of the runbook, its silence."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import Response
from markupsafe import Markup, escape

from shardpost.alerts.channels import channels
from shardpost.alerts.history import list_firing
from shardpost.alerts.model.alert import (
    DEADLINE_MISSED,
    EVENT,
    TASK_FAILED,
    Condition,
    Firing,
    Silence,
    urgency,
)
from shardpost.alerts.notifier import silence as silence_until
from shardpost.delta.query import table_errors
from shardpost.errors import NotFoundError, UsageError, single_line
from shardpost.instants import parse_duration
from shardpost.page.access import KAFKA, acts, sees
from shardpost.page.record_outcomes import with_links
from shardpost.page.rendering import ROWS_OF_A_PAGE, Link, Listing, page_of
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest, Reason
from shardpost.wording import duration_text

router = APIRouter(prefix="/alerts", dependencies=[sees(KAFKA)])
COLUMNS = ("alert", "severity", "since", "ended", "last sent", "silenced until", "found")
LONGEST_NAME = 100
NOTHING = "Nothing is firing, as of the last run of the DAG watch_kafka."
# Titles of rules whose names do not say it.
TITLES = {
    "time-to-loss": "Records will be deleted unread",
    "snapshot-age": "The snapshot is old",
    "emails-unknown": "Deliveries unknown",
    "emails-failed": "E-mails failed",
    "emails-late": "Records came after the freeze",
    "emails-open": "Clients wait for their e-mail",
    "emails-missing": "Nobody is mailed",
    "letters-parked": "Dead letters parked",
    "letters-overdue": "Retries overdue",
    "run-age": "A run does not end",
}


_READERS = ("time-to-loss", "data-lost")


def title_of(condition: Condition) -> str:
    """Return what fires, in words."""
    rule = TITLES.get(condition.rule) or condition.rule.replace("-", " ").capitalize()
    of = " in ".join(_reader(condition.subject).values()) if condition.rule in _READERS else None
    subject = of or condition.subject
    text = f"{rule}: {subject}" if subject else rule
    return single_line(text, LONGEST_NAME)


def firing(visit: PageRequest) -> list[Firing]:
    """Return what fires, as the user may see it: over or silenced last, the others worst first."""
    with table_errors():
        known = sorted(list_firing(visit.installation.tables), key=lambda one: _urgency(one, visit))
    if visit.sees_clients:
        return known
    return [replace(o, condition=o.condition.without_clients(), silenced_why=None) for o in known]


def needs_a_person(one: Firing, visit: PageRequest) -> bool:
    """Tell whether a person has to act now."""
    return one.ended_at is None and not one.is_silenced(visit.now)


def _urgency(one: Firing, visit: PageRequest) -> tuple[Any, ...]:
    is_event = one.condition.source == EVENT
    return not needs_a_person(one, visit), is_event, urgency(one.condition), one.since


@router.get("")
def alerts(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show what is firing, worst first."""
    found = firing(visit)
    listing = page_of([_row(one, visit) for one in found], COLUMNS, page, NOTHING)
    first = (listing.number - 1) * ROWS_OF_A_PAGE
    return visit.answer(
        "alerts.html",
        found,
        listing,
        cards=found[first : first + ROWS_OF_A_PAGE],
        title_of=title_of,
        place_of=place_of,
        with_links=with_links,
        channels=[one.name for one in channels(visit.installation)],  # which have no secrets
    )


def _row(one: Firing, visit: PageRequest) -> tuple[Any, ...]:
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


def _reader(subject: str) -> dict[str, str]:
    group, _, topic = subject.rpartition(" ")
    return {"group": group, "topic": topic}


_EMAILS = ("emails-unknown", "emails-failed", "emails-late", "emails-open", "emails-missing")
_LETTERS = ("Dead letters", "letters")
# {rule: title and path of the page that shows what it is about, and its parameters}
PLACES: dict[str, tuple[str, str, Callable[[str], dict[str, str]]]] = {
    "letters-parked": (*_LETTERS, lambda origin: {"state": "parked", "origin": origin}),
    "letters-overdue": (*_LETTERS, lambda _: {"state": "waiting"}),
    **dict.fromkeys(_EMAILS, ("Weekly e-mails", "emails/week", lambda subject: {"week": subject})),
    **dict.fromkeys(_READERS, ("Lag", "topics/lag", _reader)),
    "run-age": ("Run request", "runs/key", lambda subject: {"key": subject}),
    "snapshot-age": ("Snapshots", "tables/snapshots", lambda _: {}),
    "compaction-refused": ("Snapshots", "tables/snapshots", lambda _: {}),
    "disk-full": ("Tables", "tables", lambda _: {}),
    "lists-too-large": ("Holders", "holders", lambda _: {}),
}


def place_of(condition: Condition, visit: PageRequest) -> Link:
    """Return the page that shows what a condition is about."""
    if condition.rule in PLACES:
        title, path, query = PLACES[condition.rule]
        return Link(title, visit.url(path, **query(condition.subject)))
    if condition.rule in (TASK_FAILED, DEADLINE_MISSED, "run-refused"):
        dag = condition.subject.partition(" ")[0].removeprefix(visit.own.id(""))
        return Link("DAG", visit.dag_url(dag))
    if condition.source == "kafka":
        return Link("Topics", visit.url("topics"))
    return Link("Alert", visit.url("alerts/one", key=condition.name))


@router.get("/one")
def alert(visit: CurrentRequest, key: str) -> Response:
    """Show one alert, what to do, who was notified, and what silences it."""
    found = next((one for one in firing(visit) if one.condition.name == key), None)
    if found is None:
        raise NotFoundError(f"no alert {key} is firing: it has ended, or never fired")
    told = [(name, told.at, str(told.severity)) for name, told in sorted(found.told.items())]
    listing = Listing(("channel", "last sent", "severity"), told, "Nobody was notified yet.")
    return visit.answer(
        "alert.html",
        found,
        listing,
        one=found,
        title=title_of(found.condition),
        is_event=found.condition.source == EVENT,
        is_silenced=found.is_silenced(visit.now),
        see=place_of(found.condition, visit),
        section=_what_to_do(visit, found.condition),
        with_links=with_links,
    )


def _what_to_do(visit: PageRequest, condition: Condition) -> Markup:
    """Return what our runbook says, with what is known here in the place of what stands for it."""
    settings, section = visit.installation.settings, visit.runbook_section(condition.rule)
    known = {"HOST:9092": visit.installation.kafka.bootstrap.partition(",")[0]}
    if condition.rule in _READERS:
        reader = _reader(condition.subject)
        known |= {"--group G": f"--group {reader['group']}", "GROUP": reader["group"]}
        known |= {
            "TOPIC": reader["topic"],
            "(12 hours)": f"({duration_text(settings.loss_warning)})",
        }
    found = re.compile(rf"({'|'.join(map(re.escape, known))})(?!\w)")
    filled = found.sub(lambda named: str(escape(known[named[0]])), section)
    return Markup(filled)  # noqa: S704 - ours, and escaped


Key = Annotated[str, Form()]


@router.post("/silence", dependencies=acts(KAFKA))
def silence(
    visit: CurrentRequest, key: Key, duration: Annotated[str, Form(max_length=20)], why: Reason
) -> Response:
    """Send nothing of an alert for a time, but its end, or that it became worse."""
    wanted = parse_duration(duration.strip())
    if not wanted:
        raise UsageError(f"duration {duration!r}: expected at least 1m")
    return _silence(visit, key, wanted, why)


@router.post("/unsilence", dependencies=acts(KAFKA))
def unsilence(visit: CurrentRequest, key: Key, why: Reason) -> Response:
    """End a silence."""
    return _silence(visit, key, timedelta(), why)


def _silence(visit: PageRequest, key: str, duration: timedelta, why: str) -> Response:
    wanted = Silence(visit.now + duration, visit.name, why)
    return visit.back_to("alerts", silence_until(visit.installation, key, wanted, visit.now))
