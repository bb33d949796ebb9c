"""All pages as one router, and what is said where one cannot be shown."""

from importlib.resources import files
from pathlib import Path
from typing import cast

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from shardpost.errors import NotFoundError, ShardpostError, UsageError
from shardpost.page import (
    alerts,
    email_actions,
    email_lists,
    emails,
    holders,
    letter,
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
from shardpost.page.memory import Memory
from shardpost.page.refusals import in_words, misunderstanding, refusal
from shardpost.page.rendering import FOLDER, HEADERS

STATIC = FOLDER / "static"
UNKNOWN_USER = 401
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
    email_lists,
    email_actions,
    mails,
    letters,
    letter,
    redrives,
    runs,
    alerts,
    topics,
    stored_tables,
):
    router.include_router(part.router)


@router.get("/static/{version}/{name}")
def static(version: str, name: str) -> Response:
    """Return a script or a style sheet; each release has addresses of its own."""
    known = {file.name: file for file in STATIC.iterdir()}
    known["plotly.min.js"] = Path(str(files("plotly") / "package_data" / "plotly.min.js"))
    if name not in known:
        raise HTTPException(404, f"no file {name}")
    return FileResponse(known[name], headers=CACHED)


def add_to(app: FastAPI) -> None:
    """Serve the pages from an app, which has their memory."""
    app.state.memory = Memory()
    app.include_router(router)
    app.add_exception_handler(ShardpostError, _not_to_be_had)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)


async def _refused(request: Request, error: Exception) -> Response:
    """Lead who is not logged in to Airflow's login; say to others why not."""
    found = cast(HTTPException, error)
    wants_page = "text/html" in request.headers.get("accept", "")
    if not wants_page:
        headers = {**HEADERS, **(found.headers or {})}
        return JSONResponse({"detail": found.detail}, found.status_code, headers)
    if found.status_code == UNKNOWN_USER and request.method == "GET":
        login = get_auth_manager().get_url_login(next_url=str(request.url))
        return RedirectResponse(login, 302, HEADERS)
    why = in_words(found.status_code, str(found.detail), request.url.path)
    return refusal(request, found.status_code, why)


async def _not_to_be_had(request: Request, error: Exception) -> Response:
    """Say what is not there, or does not answer, in the place of the page."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 503)
    return await _refused(request, HTTPException(status, str(error)))


async def _not_understood(request: Request, error: Exception) -> Response:
    """Say which parameter is not what was expected."""
    problems = cast(RequestValidationError, error).errors()
    said = "; ".join(dict.fromkeys(map(misunderstanding, problems)))
    return await _refused(request, HTTPException(400, said))
