"""Dead letters: how many are waiting, parked or resolved, by error; and one by one.

Of one letter: its value, its headers, its life step by step, and what was decided about it.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from click import Command
from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from shardpost.commands.letters import first_line, list_command
from shardpost.dead_letters.letter_details import LetterDetails, describe
from shardpost.dead_letters.letter_index import open_index
from shardpost.dead_letters.letter_topics import not_visible
from shardpost.dead_letters.letters_table import FEW_OFFSETS
from shardpost.dead_letters.listed_letters import LetterGroup, ListedLetters, listed, names_of
from shardpost.dead_letters.model.letter_format import LetterState, attempt_of
from shardpost.dead_letters.model.letter_history import STATES, ListFilters
from shardpost.dead_letters.redrive_runs import last_run
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.holders.readable_values import Readable, ReadableValues
from shardpost.instants import instant_of
from shardpost.kafka.records import Coordinates, utf8_text
from shardpost.page.access import LETTERS, sees
from shardpost.page.command_form import TypedForm
from shardpost.page.record_outcomes import key_link, outcomes_of, own_topics, record_link
from shardpost.page.rendering import HEADERS, ROWS_OF_A_PAGE, Link, Listing, page_of
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest
from shardpost.page.value_layout import ON_OWN_PAGE, laid_out_by_schema, summary
from shardpost.topics.guards import inspect_stores
from shardpost.wording import counted

router = APIRouter(prefix="/letters", dependencies=[sees(LETTERS)])
NONE_AT_ALL = (
    "No dead letters are waiting or parked, and none was resolved in the last 7 days. "
    "Records that a consumer cannot process arrive here; the DAG sweep_dead_letters handles them "
    "every five minutes."
)
NO_MATCH = "No letter matches. To list letters that were resolved more than 7 days ago, set Since."
LONGEST_ERROR = 160
# Of a value so much can be edited in a form.
EDITED_BYTES = 100_000
# Origins and errors that a form offers.
MOST_OFFERED = 500


class Wanted(TypedForm):
    """Which letters an address asks for: the filters of `letters list`, a text, and a page."""

    command: ClassVar[Command] = list_command

    state: str | None = None
    origin: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    page: PageNumber = 1

    @property
    def filters(self) -> ListFilters:
        """Which letters these are."""
        return ListFilters(**self.model_dump(exclude={"page"}))

    @property
    def query(self) -> dict[str, str]:
        """The parameters of an address that has them; a page is none."""
        given = self.model_dump(mode="json", exclude={"page"})
        return {name: text or "" for name, text in given.items()}


AskedFor = Annotated[Wanted, Query()]


@router.get("")
def letters(visit: CurrentRequest, asked: AskedFor) -> Response:
    """Show the letters by state, origin and error."""
    found, given = _found(visit, asked)
    groups = found.groups()
    rows = [_group_row(visit, asked, group) for group in groups]
    columns = ("letters", "state", "origin", "error id", "decide", "oldest", "newest", "such as")
    document = {"letters": found.total, "due": found.due(visit.now), "groups": groups}
    empty = NO_MATCH if any(asked.query.values()) else NONE_AT_ALL
    return visit.answer(
        "letters.html",
        document,
        page_of(rows, columns, asked.page, empty),
        plan=_plan_url(visit, asked),
        is_filtered=any(asked.query.values()),
        **given,
    )


@router.get("/list")
def one_by_one(visit: CurrentRequest, asked: AskedFor) -> Response:
    """Show the letters one by one, newest first."""
    found, given = _found(visit, asked)
    steps = found.page((asked.page - 1) * ROWS_OF_A_PAGE, ROWS_OF_A_PAGE)
    rows = [
        (
            Link(step.id, visit.url("letters/letter", id=step.id)),
            key_link(visit, step.origin_topic, step.origin_key),
            str(step.state),
            step.origin_topic,
            step.fingerprint,
            step.attempt,
            step.at,
            step.due,
            first_line(step.error, LONGEST_ERROR) or None,
        )
        for step in steps
    ]
    columns = ("letter", "key", "state", "origin", "error id", "attempt", "since", "due", "error")
    parked = [step.id if step.state == LetterState.PARKED else None for step in steps]
    empty = NO_MATCH if any(asked.query.values()) else NONE_AT_ALL
    listing = Listing(columns, rows, empty, total=found.total, number=asked.page)
    return visit.answer("letter_list.html", steps, listing, parked=parked, **given)


@router.get("/selected")
def selected(
    visit: CurrentRequest,
    letter: Annotated[list[str] | None, Query()] = None,
    do: Literal["redrive", "discard"] = "redrive",
) -> Response:
    """Lead to the plan of a decision about the letters that are ticked in the list."""
    if not letter:
        raise UsageError("letter: expected at least one selected letter, found none")
    return RedirectResponse(visit.url("letters/plan", do=do, ids="\n".join(letter)), 303)


def _found(visit: PageRequest, asked: Wanted) -> tuple[ListedLetters, dict[str, Any]]:
    index = open_index(visit.installation, visit.memory.letters, most_unread=FEW_OFFSETS)
    found = listed(visit.installation, index, asked.filters, visit.now)
    origins, errors = names_of(index)
    return found, {
        "found": found,
        "asked": asked,
        "states": STATES,
        "origins": origins[:MOST_OFFERED],
        "errors": errors[:MOST_OFFERED],
        "warnings": _warnings(visit, index.unread),
        "run": last_run(visit.installation.files, visit.now),
    }


def _warnings(visit: PageRequest, unread: int) -> list[str]:
    said = []
    if unread:
        said.append(f"not included yet: {counted(unread, 'record')}, which the next sweep reads")
    try:
        inspect_stores(visit.installation, "dead-letters", "parking-lot")
        hidden = not_visible(visit.installation.kafka)
    except ShardpostError as error:
        return [*said, str(error)]
    return said + [f"not visible yet: {offsets}, after an open transaction" for offsets in hidden]


def _group_row(visit: PageRequest, asked: Wanted, group: LetterGroup) -> tuple[object, ...]:
    chosen = {"state": group.state, "origin": group.origin, "error": group.error}
    query = {**asked.query, **{name: value or "" for name, value in chosen.items()}}
    decide = None
    if group.state == LetterState.PARKED and group.error:
        address = _plan_url(visit, asked, origin=group.origin, error=group.error)
        decide = address and Link("redrive or discard", address)
    return (
        Link(f"{group.letters:,}", visit.url("letters/list", **query)),
        group.state,
        group.origin,
        group.error and Link(group.error, visit.url("letters", **query)),
        decide,
        group.oldest,
        group.newest,
        first_line(group.said, LONGEST_ERROR) or None,
    )


def _plan_url(visit: PageRequest, asked: Wanted, **group: str | None) -> str | None:
    """Return the address of a decision about the parked ones of the letters that are asked for.

    None if no selection of a decision is these, such as what a text finds, or letters without an
    origin: they are ticked in the list.
    """
    if asked.query["state"] not in ("", LetterState.PARKED) or asked.text:
        return None
    if not group.get("origin", "all"):  # a filter is never empty
        return None
    chosen = {name: asked.query[name] for name in ("origin", "error", "since", "until")}
    return visit.url("letters/plan", **{**chosen, **group})


@router.get("/letter")
def letter(visit: CurrentRequest, id: str) -> Response:  # noqa: A002 - as it stands in the address
    """Show one letter."""
    found = describe(visit.installation, id)
    value = found.record.value if found.record else None
    values = ReadableValues(visit.installation)
    readable = values.read(found.record) if found.record else Readable(None)
    life = [
        (
            step.at,
            str(step.state),
            step.attempt,
            step.error,
            step.due,
            record_link(visit, step.topic, step.partition, step.offset),
        )
        for step in found.life
    ]
    return visit.answer(
        "letter.html",
        found.as_json(),
        Listing(("at", "state", "attempt", "error", "due", "record"), life),
        found=found,
        value=laid_out_by_schema(readable, ON_OWN_PAGE),
        key_link=key_link,
        record_link=record_link,
        retries=_retries(visit, found),
        is_parked=found.state == LetterState.PARKED,
        # As a form has it to be edited; None if it is no text, or too long.
        edited=utf8_text(value) if len(value or b"") <= EDITED_BYTES else None,
        has_crlf=value is not None and b"\r\n" in value,
    )


@router.get("/value")
def value(visit: CurrentRequest, id: str) -> Response:  # noqa: A002 - as it stands in the address
    """Return a letter's value as it is, to be saved."""
    record = describe(visit.installation, id).record
    if record is None or record.value is None:
        raise ShardpostError(f"letter {shown(id)}: its value is no longer in Kafka")
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="value.bin"'}
    return Response(record.value, media_type="application/octet-stream", headers=headers)


def _retries(visit: PageRequest, found: LetterDetails) -> Listing:
    same = found.record.value if found.record else None
    became: dict[Coordinates, str] = {}  # of those in topics that are not to be seen nothing
    for name, topic in own_topics(visit.installation).items():
        own = [retry for retry in found.retries if retry.coordinates.topic == name]
        outcomes, _ = outcomes_of(visit, topic, own if topic.is_seen(visit) else ())
        became |= {at: one.text for at, one in outcomes.items()}
    rows = [
        (
            instant_of(retry.timestamp),
            attempt_of(retry.headers),
            record_link(visit, *retry.coordinates),
            "the same value" if retry.value == same else summary(retry.value),
            became.get(retry.coordinates, "unknown"),
        )
        for retry in found.retries
    ]
    empty = "Kafka has no retry of this letter: it was not retried yet, or long ago."
    return Listing(("sent", "attempt", "record", "value", "its outcome"), rows, empty)
