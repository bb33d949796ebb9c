"""All pages as one router, and error pages."""

from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from shardpost.errors import NotFoundError, ShardpostError, UsageError
from shardpost.installation import Declared
from shardpost.page import (
    alerts,
    email_actions,
    emails,
    holders,
    letters,
    mails,
    overview,
    record,
    records,
    redrives,
    runs,
    stored_tables,
    topics,
)
from shardpost.page.command_form import LONGEST_FOUND
from shardpost.page.rendering import FOLDER, HEADERS, SECTIONS, Link, environment, runbook_html
from shardpost.page.request import CurrentRequest, Memory, PageContext

STATIC = FOLDER / "static"
STATUS = {UsageError: 400, NotFoundError: 404}
# A year: the address has the version in it.
CACHED = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}


router = APIRouter(dependencies=[Depends(get_user)])
for part in (
    overview,
    holders,
    record,
    records,
    emails,
    email_actions,
    mails,
    letters,
    redrives,
    runs,
    alerts,
    topics,
    stored_tables,
):
    router.include_router(part.router)


@router.get("/runbook")
def runbook(visit: CurrentRequest) -> Response:
    """Show the runbook, a section for each rule."""
    return visit.answer("runbook.html", text=runbook_html())


@router.get("/static/{version}/{name}")
def static(version: str, name: str) -> Response:
    """Return a script or a style sheet; each release has addresses of its own."""
    known = {file.name: file for file in STATIC.iterdir()}
    known["plotly.min.js"] = Path(str(files("plotly") / "package_data" / "plotly.min.js"))
    if name not in known:
        raise HTTPException(404, f"no file {name}")
    return FileResponse(known[name], headers=CACHED)


def refusal(request: Request, status: int, why: str) -> Response:
    """Return a page that says why a request was refused, and repeats what was sent."""
    place = PageContext(request)
    ways = dict.fromkeys((place.section, ""))
    template = environment().get_template("refusal.html")
    text = template.render(
        visit=place,
        sections=SECTIONS,
        status=status,
        why=why,
        ways=[Link(SECTIONS[way], place.url(way)) for way in ways],
        sent=getattr(request.state, "sent", ()),
    )
    return HTMLResponse(text, status, HEADERS)


def in_words(status: int, detail: str, path: str) -> str:
    """Return why a request was refused, in our words where nobody has said more than its status."""
    if detail != HTTPStatus(status).phrase:
        return detail
    if status == HTTPStatus.NOT_FOUND:
        return f"there is no page {path}"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return "this address has no page: it only accepts forms"
    return detail


def misunderstanding(problem: Mapping[str, Any]) -> str:
    """Return what a parameter should have been, as pydantic says it, and what was found."""
    name, given, message = problem["loc"][-1], problem["input"], problem["msg"]
    if problem["type"] == "value_error":  # of a check of ours, which says what it found
        return f"{name}: {message.removeprefix('Value error, ')}"
    # Of one that is missing, the input is all that was sent.
    is_none = given in (None, "") or problem["type"] == "missing"
    found = "none" if is_none else repr(str(given)[:LONGEST_FOUND])
    wanted = message.removeprefix("Input ").removeprefix("String ").partition(", unable")[0]
    return f"{name}: {wanted[0].lower()}{wanted[1:]}, found {found}"


def add_to(app: FastAPI, own: Declared) -> None:
    """Serve the pages of an installation from an app, which has their memory."""
    app.state.own, app.state.memory = own, Memory()
    app.include_router(router)
    app.add_exception_handler(ShardpostError, _not_to_be_had)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(request: Request, error: Exception) -> Response:
    """Lead who is not logged in to Airflow's login; say to others why not."""
    found = cast(HTTPException, error)
    wants_page = "text/html" in request.headers.get("accept", "")
    if not wants_page:
        headers = {**HEADERS, **(found.headers or {})}
        return JSONResponse({"detail": found.detail}, found.status_code, headers)
    if found.status_code == HTTPStatus.UNAUTHORIZED and request.method == "GET":
        login = get_auth_manager().get_url_login(next_url=str(request.url))
        return RedirectResponse(login, 302, HEADERS)
    why = in_words(found.status_code, str(found.detail), request.url.path)
    return refusal(request, found.status_code, why)


async def _not_to_be_had(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 503)
    return await _refused(request, HTTPException(status, str(error)))


async def _not_understood(request: Request, error: Exception) -> Response:
    problems = cast(RequestValidationError, error).errors()
    said = "; ".join(dict.fromkeys(map(misunderstanding, problems)))
    return await _refused(request, HTTPException(400, said))


async def _unexpected(request: Request, error: Exception) -> Response:
    """Say that it is an error of ours; the server raises it again, and logs its traceback."""
    why = (
        f"an unexpected error, {type(error).__name__}: the log of Airflow's API server has its"
        " traceback. Try again; if it fails again, report it with the traceback"
    )
    return await _refused(request, HTTPException(500, why))
