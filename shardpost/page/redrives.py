"""Redrive and discard parked letters: the plan, carrying it out, and progress."""

import base64
import binascii
import re
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qsl, urlencode

from click import Command
from fastapi import APIRouter, Form, Query
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, BeforeValidator, Field

from shardpost.commands.parked_letters import redrive_command
from shardpost.dead_letters.letter_index import open_index
from shardpost.dead_letters.letters_table import FEW_OFFSETS
from shardpost.dead_letters.listed_letters import ListedLetters, listed
from shardpost.dead_letters.model.letter_format import LetterState
from shardpost.dead_letters.model.letter_history import ListFilters
from shardpost.dead_letters.model.redrive_request import RedriveRequest, require_fitting
from shardpost.dead_letters.redrive import Redrive
from shardpost.dead_letters.redrive_plan import (
    RedrivePlan,
    lot_size,
    plan_of_ids,
    plan_redrive,
    prepared,
)
from shardpost.dead_letters.redrive_runs import ask_to_stop, last_run, start
from shardpost.errors import UsageError, one_line
from shardpost.holders.inputs import input_topics
from shardpost.holders.plausibility import problem_of
from shardpost.orchestration.connections import task_installation
from shardpost.page.access import LETTERS, acts, sees
from shardpost.page.command_form import CommandForm, TypedForm, fields_of
from shardpost.page.record_outcomes import letter_link
from shardpost.page.rendering import Listing
from shardpost.page.request import CurrentRequest, PageRequest, Reason
from shardpost.page.value_layout import ON_OWN_PAGE, laid_out

router = APIRouter(prefix="/letters", dependencies=[sees(LETTERS)])
# A parking lot with more records is read only if one asks for it: the numbers are there sooner.
READ_AT_ONCE = 20_000
# Letters named by their ids, of a longer one, of which the records alone are read.
READ_ONE_BY_ONE = 20
# So long an answer waits for a decision to be carried out; a longer one continues behind it.
ANSWER_SECONDS = 2.0
# What becomes of letters, as the page says it.
DECISIONS = {
    "redriven": "redriven",
    "edited": "redriven with the given value",
    "discarded": "discarded",
}


FIELDS = fields_of(
    redrive_command, ("origin", "error", "since", "until", "canary", "rate", "again")
)


class Chosen(CommandForm):
    """Which parked letters, and what is to become of them, as an address says it.

    The ids are lines, each exactly an id: none has an end of a line. `up_to` is of a plan, and
    `whole` of how it is shown.
    """

    command: ClassVar[Command] = redrive_command

    do: Literal["redrive", "discard"] = "redrive"
    ids: str | None = None
    origin: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    canary: int | None = None
    rate: float | None = None
    again: bool = False
    up_to: str | None = None
    whole: Annotated[bool, Field(exclude=True)] = False

    def filters(self) -> ListFilters:
        """Return which letters."""
        ids = None if self.ids is None else frozenset(re.split("[\r\n]+", self.ids)) - {""}
        return ListFilters(None, self.origin, self.error, self.since, self.until, ids=ids)

    def query(self) -> dict[str, Any]:
        """Return it as the parameters of an address."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Typed(TypedForm, Chosen):
    """The same as a form sends it."""


def _sent(plan: str) -> dict[str, str]:
    """Return the parameters of a plan's address, also empty ones, which a form leaves out."""
    sent = dict(parse_qsl(plan, keep_blank_values=True))
    if unknown := sent.keys() - Chosen.model_fields.keys():
        raise ValueError(f"expected a plan that was shown, found one with {min(unknown)!r}")
    return sent


class Applied(BaseModel):
    """The plan to be carried out, and why; `value` replaces that of the one letter, in base64."""

    plan: Annotated[Chosen, BeforeValidator(_sent)]
    why: Reason
    value: str | None = None


@router.get("/choose")
def choose(visit: CurrentRequest, typed: Annotated[Typed, Query()]) -> Response:
    """Lead to the plan of what a form says."""
    return RedirectResponse(visit.url("letters/plan", **typed.query()), 303)


@router.get("/plan")
def plan(visit: CurrentRequest, chosen: Annotated[Chosen, Query()]) -> Response:
    """Show what a decision would do, by its own parameters."""
    return _plan(visit, chosen, None)


@router.post("/edit", dependencies=acts(LETTERS))
def edit(
    visit: CurrentRequest,
    id: Annotated[str, Form()],  # noqa: A002 - as it stands in the address
    value: Annotated[str, Form()],
    written: Annotated[Literal["text", "base64"], Form()] = "text",
    crlf: Annotated[bool, Form()] = False,
) -> Response:
    """Show what redriving one letter with another value would do."""
    text = value.replace("\r\n", "\n")  # forms send each end of a line as two characters
    typed = (text.replace("\n", "\r\n") if crlf else text).encode()
    made = _bytes_of(value) if written == "base64" else typed
    return _plan(visit, Chosen(ids=id), made)


@router.post("/apply", dependencies=acts(LETTERS))
def apply(visit: CurrentRequest, applied: Annotated[Applied, Form()]) -> Response:
    """Carry a decision out, and show how far it has come."""
    if applied.plan.up_to is None:
        raise UsageError("expected the plan that was shown, found none: open the plan again")
    value = None if applied.value is None else _bytes_of(applied.value)
    redrive = _redrive(visit, applied.plan, value, applied.why, is_patient=True)
    start(redrive, applied.plan.query(), ANSWER_SECONDS)
    return visit.back_to("letters/run", "")  # which shows how far it is


@router.post("/stop", dependencies=acts(LETTERS))
def stop(visit: CurrentRequest, run: Annotated[str, Form()]) -> Response:
    """Stop a run after the letters that it is writing."""
    ask_to_stop(visit.installation.files, run)
    return visit.back_to("letters/run", "stopping after the letters that are being written")


@router.get("/run")
def last(visit: CurrentRequest) -> Response:
    """Show how far the last decision is, or how it ended."""
    run = last_run(visit.installation.files, visit.now)
    return visit.answer("redrive_run.html", run, run=run, decisions=DECISIONS)


def _redrive(
    visit: PageRequest, chosen: Chosen, value: bytes | None, why: str, *, is_patient: bool = False
) -> Redrive:
    filters = chosen.filters()
    if value is not None:
        if len(filters.ids or ()) != 1 or chosen.do == "discard":
            raise UsageError(
                "value: expected exactly one letter to redrive, found another selection"
            )
        require_fitting(value, "value")
    request = RedriveRequest(
        filters, chosen.do == "redrive", visit.name, why, visit.now, chosen.again, value
    )
    # The work may go on after its answer, with the patience of a task.
    installation = task_installation(visit.own) if is_patient else visit.installation
    return prepared(installation, request, chosen.canary, chosen.rate, chosen.up_to)


def _plan(visit: PageRequest, chosen: Chosen, value: bytes | None) -> Response:
    redrive = _redrive(visit, chosen, value, "")
    is_read = lot_size(redrive) <= READ_AT_ONCE or chosen.whole
    if is_read:
        document = plan_redrive(redrive).as_json(redrive.request.kind)
    else:
        found = _listed(visit, redrive)
        is_read = 0 < len(redrive.request.filters.ids or ()) <= READ_ONE_BY_ONE
        document = (
            plan_of_ids(redrive, found.page(0, READ_ONE_BY_ONE)).as_json(redrive.request.kind)
            if is_read
            else _counted(redrive, found)
        )
    rows = [
        (one["origin"], one["error"], one["letters"], letter_link(visit, one["such_as"]))
        for one in document["groups"]
    ]
    origins = {one["origin"] for one in document["groups"]}
    inputs = sorted(origins & {*input_topics(visit.installation.kafka)})
    problem = None
    if value is not None:  # what a compaction would have against it
        problem = next((problem_of(visit.installation, one, value) for one in inputs), None)
    columns = ("origin", "error", "letters", "such as")
    empty = "No parked letter is selected, or each is refused."
    return visit.answer(
        "redrive.html",
        document,
        Listing(columns, rows[:100], empty),
        chosen=chosen,
        fields=FIELDS,
        plan=urlencode({**chosen.query(), "up_to": document["up_to"]}),
        is_read=is_read,
        decisions=DECISIONS,
        value=None if value is None else base64.b64encode(value).decode(),
        shown=None if value is None else laid_out(value, ON_OWN_PAGE),
        problem=problem,
        checked=bool(inputs),
        unchanged=inputs if value is None and chosen.do == "redrive" else (),
        run=last_run(visit.installation.files, visit.now),
    )


def _listed(visit: PageRequest, redrive: Redrive) -> ListedLetters:
    of = redrive.request.filters
    filters = replace(of if of.ids is None else ListFilters(ids=of.ids), state=LetterState.PARKED)
    index = open_index(visit.installation, visit.memory.letters, most_unread=FEW_OFFSETS)
    found = listed(visit.installation, index, filters, visit.now)
    return found.before(redrive.shown.ends)


def _counted(redrive: Redrive, found: ListedLetters) -> dict[str, Any]:
    """Return the plan by the list: how many are parked, and not which of them are refused."""
    groups = [
        {"origin": one.origin, "error": one.error, "letters": one.letters, "such_as": one.such_as}
        for one in found.groups()
    ]
    count = found.total if redrive.canary is None else min(found.total, redrive.canary)
    plan = RedrivePlan(redrive.shown).as_json(redrive.request.kind)
    return {**plan, "letters": count, "groups": groups}


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"value: expected base64, found {one_line(text[:50])}: {error}") from None
