"""Run requests: active keys and their runs, decisions, and requesting a run."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException
from fastapi.responses import Response

from shardpost.decisions import Kind
from shardpost.page.access import RUNS, acts, sees
from shardpost.page.rendering import ROWS_OF_A_PAGE, Link, Listing, page_of
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest, Reason
from shardpost.run_requests import request_client
from shardpost.run_requests.request_client import release as release_key

router = APIRouter(prefix="/runs", dependencies=[sees(RUNS)])
COLUMNS = ("key", "state", "since", "DAG", "requested by", "run")
DECIDED = ("key", "decided", "when", "by", "DAG", "requested by", "why")
NO_KEY = "No run is waiting or running."
NO_DECISION = "No conflict, refusal or release."
# A dispatch begins within some seconds of a request.
REFRESH_SECONDS = 3


@router.get("")
def runs(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show which keys are at work, and what was decided on requests lately."""
    decided = _all_decided(visit)
    found = request_client.list_runs(visit.installation.kafka, decided)
    at_work = [row for row in found if row.state != str(Kind.CONFLICT)]
    return visit.answer(
        "runs.html",
        found,
        page_of([_row(row, visit) for row in at_work], COLUMNS, page, NO_KEY),
        decided=_decisions(decided),
        days=visit.installation.settings.request_days,
        dags=sorted(filter(visit.may_run, visit.installation.settings.requestable_dags)),
    )


def _all_decided(visit: PageRequest) -> list[request_client.Decided]:
    installation = visit.installation
    days = installation.settings.request_days
    return request_client.list_decided(
        installation.kafka, visit.now, days, most=request_client.RECENT_DECISIONS
    )


def _row(row: request_client.RunRow, visit: PageRequest) -> tuple[Any, ...]:
    run = None
    if row.dag and row.run_id:
        run = Link(row.run_id, visit.dag_url(row.dag, "runs", row.run_id))
    key = Link(row.key, visit.url("runs/key", key=row.key))
    return (key, row.state, row.since, row.dag, row.requested_by, run)


def _decisions(decided: list[request_client.Decided]) -> Listing:
    newest = [(one.row(), one.decision) for one in decided[-ROWS_OF_A_PAGE:]]
    rows = [
        (row.key, str(of.kind), of.when, of.who, row.dag, row.requested_by, of.why)
        for row, of in reversed(newest)
    ]
    return Listing(DECIDED, rows, NO_DECISION)


@router.get("/key")
def key(visit: CurrentRequest, key: str) -> Response:
    """Show what runs under one key, and what was decided on it."""
    decided = [one for one in _all_decided(visit) if one.row().key == key]
    rows = [
        row for row in request_client.list_runs(visit.installation.kafka, decided) if row.key == key
    ]
    active = next((row for row in rows if row.state != str(Kind.CONFLICT)), None)
    facts = dict(zip(COLUMNS[1:], _row(active, visit)[1:], strict=True)) if active else None
    days = visit.installation.settings.request_days
    run_id = active and active.run_id
    return visit.answer(
        "run_key.html",
        rows,
        _decisions(decided),
        key=key,
        facts=facts,
        days=days,
        run_id=run_id,
        refresh=REFRESH_SECONDS if visit.said and not run_id else None,
    )


@router.post("/request", dependencies=acts(RUNS))
def request(
    visit: CurrentRequest,
    key: Annotated[str, Form()],
    dag: Annotated[str, Form()],
    conf: Annotated[str, Form()] = "",
) -> Response:
    """Ask for a run; what becomes of it is on the page of its key."""
    if not visit.may_run(dag):
        raise HTTPException(403, f"for users who may run the DAG {dag}")
    params = request_client.conf_of("params", conf.strip() or "{}")
    value = {"Dag": dag, "Conf": params, "RequestedBy": visit.name}
    sent = request_client.send_request(visit.installation.kafka, key, value)
    return visit.back_to("runs/key", f"requested: {sent.coordinates}", key=key)


@router.post("/release", dependencies=acts(RUNS))
def release(
    visit: CurrentRequest, key: Annotated[str, Form()], run: Annotated[str, Form()], why: Reason
) -> Response:
    """Free a key whose run never ends; none that another run has taken since it was shown."""
    command = release_key(visit.installation, key, visit.name, why, visit.now, run_id=run)
    said = f"released: {key}; run {command.run_id} of {command.dag} is left running"
    return visit.back_to("runs", said)
