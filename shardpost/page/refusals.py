"""What is said in the place of a page: why there is none, in our words, and the ways on."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.routing import Match

from shardpost.page.rendering import HEADERS, SECTIONS, Link, Place, environment
from shardpost.wording import counted

LONGEST_FOUND = 50


def refusal(request: Request, status: int, why: str) -> Response:
    """Return a page that says why there is no other, and what was sent in vain."""
    place = Place(request)
    text = (
        environment()
        .get_template("refusal.html")
        .render(
            visit=place,
            sections=SECTIONS,
            title=_title(status),
            why=why,
            ways=_ways(place, status),
            sent=getattr(request.state, "sent", ()),
        )
    )
    return HTMLResponse(text, status, HEADERS)


def _title(status: int) -> str:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "This cannot be shown"
    return "Not found" if status == HTTPStatus.NOT_FOUND else "This was refused"


def _ways(place: Place, status: int) -> list[Link]:
    """Return where to go from there: none is where this was refused, unless it may go well now."""
    request, section, overview = place.request, place.section, SECTIONS[0]
    ways = [Link(one.title, place.url(one.path)) for one in dict.fromkeys((section, overview))]
    if request.method == "POST":
        form = _form_page(place)
        return [Link("Back to the form", form), *ways] if form else ways
    is_passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return [Link("Try again", place.again()), *ways] if is_passing else ways


def _form_page(place: Place) -> str | None:
    """Return the address of the page whose form was sent, without what an action said there."""
    request = place.request
    page = urlsplit(request.headers.get("referer", ""))
    is_ours = page.netloc == request.headers.get("host") and page.path.startswith(f"{place.root}/")
    if not is_ours or not _is_page(request, page.path):
        return None
    query = [(name, value) for name, value in parse_qsl(page.query) if name != "said"]
    return page.path + (f"?{urlencode(query)}" if query else "")


def _is_page(request: Request, path: str) -> bool:
    """Tell whether there is something to see at a path: some take only what a form sends."""
    scope = {**request.scope, "method": "GET", "path": path}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def in_words(status: int, detail: str, path: str) -> str:
    """Return why a request was refused, in our words where nobody has said more than its status."""
    if detail != HTTPStatus(status).phrase:
        return detail
    if status == HTTPStatus.NOT_FOUND:
        return f"there is no page {path}"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return "there is nothing to see at this address, which takes a form"
    return detail


_NUMBER = "a whole number"
# What is expected of a parameter, by the type of the validator's error.
EXPECTED = {
    "missing": "a value",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), _NUMBER),
    "greater_than_equal": "a number from {ge} on",
    "less_than_equal": "a number up to {le}",
    "string_too_short": "at least {min_length}",
    "string_too_long": "at most {max_length}",
    "string_pattern_mismatch": "a text",
    "bool_parsing": "true or false",
    "literal_error": "one of {expected}",
}


def misunderstanding(problem: Mapping[str, Any]) -> str:
    """Return what was expected of one parameter, and what was found."""
    name, given = problem["loc"][-1], problem["input"]
    wanted = EXPECTED.get(problem["type"])
    if wanted is None:
        return f"{name}: {problem['msg'].removeprefix('Value error, ')}"
    # Of one that is missing, the input is all that was sent.
    is_none = given in (None, "") or problem["type"] == "missing"
    found = "none" if is_none else repr(str(given)[:LONGEST_FOUND])
    return f"{name}: expected {wanted.format(**_bounds(problem.get('ctx', {})))}, found {found}"


def _bounds(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of a validator as people write them."""
    bounds = dict(given)
    for name in bounds.keys() & {"min_length", "max_length"}:
        bounds[name] = counted(bounds[name], "character")
    if "expected" in bounds:
        choices = re.findall(r"'([^']*)'", bounds["expected"])
        bounds["expected"] = ", ".join(one or "nothing" for one in choices)
    return bounds
