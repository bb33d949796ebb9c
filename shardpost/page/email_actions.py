"""Actions on the weekly e-mails: resolve unknown deliveries, start, pause, resume."""

from typing import Annotated, Any, ClassVar, Literal

from click import Command
from fastapi import APIRouter, Form, Query
from fastapi.responses import Response

from shardpost.commands.email import email_command
from shardpost.errors import ShardpostError, UsageError
from shardpost.page.access import EMAILS, acts, sees, start_run
from shardpost.page.command_form import TypedForm, fields_of
from shardpost.page.mails import unpacked
from shardpost.page.request import CurrentRequest, PageRequest, Reason
from shardpost.weekly_email import week_decisions
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.limits import totals
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.prepared_week import preview_week
from shardpost.weekly_email.week_decisions import Outcome, Resolution
from shardpost.weekly_email.week_state import WeekState
from shardpost.weekly_email.week_status import find_week, week_document
from shardpost.wording import counted

router = APIRouter(prefix="/emails", dependencies=[sees(EMAILS)])

FIELDS = fields_of(
    email_command,
    ("shards", "again", "on_unknown", "dry_run", "early", "accept_drop", "country_changed"),
)


@router.post("/resolve", dependencies=acts(EMAILS))
def resolve(
    visit: CurrentRequest,
    week: Annotated[str, Form()],
    outcome: Annotated[Literal["sent", "open"], Form()],
    why: Reason,
    client: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Record whether clients with an unknown delivery got the mail."""
    if not client:
        raise UsageError("client: expected at least one selected client, found none")
    clients = tuple(dict.fromkeys(map(unpacked, client)))
    decided = Resolution(IsoWeek.parse(week), clients, Outcome(outcome), visit.name, why, visit.now)
    shards = week_decisions.resolve(visit.installation, decided)
    said = f"{week}: {counted(len(shards), 'client')} resolved as {outcome}"
    return visit.back_to("emails/clients", said, week=week, state="unknown")


class SendOrder(TypedForm):
    """What the form of a send asks for, as the DAG weekly_email takes it."""

    command: ClassVar[Command] = email_command

    week: str
    shards: str | None = None
    again: str | None = None
    on_unknown: str | None = None
    early: bool = False
    dry_run: bool = False
    accept_drop: bool = False
    country_changed: bool = False

    def conf(self) -> dict[str, Any]:
        """Return the params of the run: those that are not as by default."""
        return self.model_dump(include=set(SendOrder.model_fields), exclude_defaults=True)

    def request(self, visit: PageRequest) -> EmailRequest:
        """Return what such a run would be asked for; UsageError for what no run can be."""
        mode = Mode.DRY_RUN if self.dry_run else Mode.SEND
        options = self.model_dump(include=set(SendOrder.model_fields) - {"week", "dry_run"})
        return EmailRequest(IsoWeek.parse(self.week), visit.now, mode, **options)


class SentOrder(SendOrder):
    """The same with the reason."""

    why: Reason


@router.get("/start")
def plan(visit: CurrentRequest, order: Annotated[SendOrder, Query()]) -> Response:
    """Show what a run of a week would find now, and the form that starts it."""
    request, installation = order.request(visit), visit.installation
    found = find_week(installation, request.week, visit.now)
    refused = None
    try:
        state = WeekState(installation, request.week)
        preview_week(installation, request, state)
    except ShardpostError as error:
        refused = str(error)
    document = week_document(found, visit.memory.ledger.by_shard(found))
    counts = totals(document["shards"])
    would_mail = counts["open"] + (counts[order.again.lower()] if order.again else 0)
    if (order.on_unknown or installation.settings.on_unknown) == "resend":
        would_mail += counts["unknown"]
    planned = {"week": order.week, "params": order.conf(), "refused": refused, "counts": counts}
    return visit.answer(
        "emails_start.html",
        planned,
        week=order.week,
        order=order,
        fields=FIELDS,
        counts=counts,
        has_run=document["has_run"],
        refused=refused,
        would_mail=would_mail,
    )


@router.post("/start", dependencies=acts(EMAILS))
def start(visit: CurrentRequest, order: Annotated[SentOrder, Form()]) -> Response:
    """Start a run of the DAG weekly_email."""
    order.request(visit)
    dag = visit.own.id(EMAILS)
    run_id = start_run(visit.name, dag, order.conf(), order.why)
    what = "dry run" if order.dry_run else "run"
    return visit.back_to(
        "emails/week", f"{order.week}: {what} {run_id} of {dag} was started", week=order.week
    )


@router.post("/pause", dependencies=acts(EMAILS))
def pause(visit: CurrentRequest, week: Annotated[str, Form()], why: Reason) -> Response:
    """Stop runs that mail a week, and have others refuse it."""
    week_decisions.pause(visit.installation, IsoWeek.parse(week), visit.name, why, visit.now)
    said = f"{week} is paused: runs that mail it end within seconds"
    return visit.back_to("emails/week", said, week=week)


@router.post("/resume", dependencies=acts(EMAILS))
def resume(visit: CurrentRequest, week: Annotated[str, Form()], why: Reason) -> Response:
    """Let runs mail a week again that was paused."""
    week_decisions.resume(visit.installation, IsoWeek.parse(week), visit.name, why, visit.now)
    said = f"{week} is resumed: start a run to mail the remaining clients"
    return visit.back_to("emails/start", said, week=week)
