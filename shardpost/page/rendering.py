"""How a page is answered: HTML from a template, or the same as JSON or CSV by `?format=`.

Templates escape what they are given.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, Form, Request
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import AfterValidator

from shardpost import __version__
from shardpost.errors import harmless, shown
from shardpost.installation import Installation
from shardpost.orchestration.connections import task_installation
from shardpost.page import access
from shardpost.page.memory import Memory
from shardpost.page.parameters import require_known
from shardpost.wording import counted, duration_text, in_bytes

FOLDER = Path(__file__).parent
# Who waits for a page waits no longer for Kafka, nor for what others are doing.
MOST_SECONDS = 5.0
# Nothing but our own files, no inline script or style; in frames of Airflow's own pages only.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
LONGEST_CELL = 400
ROWS_OF_A_PAGE = 100
_CODE = re.compile("`([^`]+)`")
# Where a spreadsheet may begin a cell, also one that separates them by other than commas.
_FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r])")


@dataclass(frozen=True)
class Section:
    """One entry of the navigation: its path below the page's own, and what it is called."""

    path: str
    title: str


SECTIONS = (
    Section("", "Overview"),
    Section("holders", "Holders"),
    Section("emails", "Weekly e-mails"),
    Section("letters", "Dead letters"),
    Section("records", "Kafka records"),
    Section("runs", "Run requests"),
    Section("alerts", "Alerts"),
    Section("topics", "Topics"),
    Section("tables", "Tables"),
)


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another page."""

    text: str
    url: str


@dataclass(frozen=True)
class Listing:
    """A table: its columns, and rows of as many cells; `empty` says what to do where it has none.

    A cell is a text, a number, an instant, a Link or None. `total` is how many rows there are of
    which these are one page; None where these are all.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str = "Nothing here."
    total: int | None = None
    number: int = 1

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return 1 if self.total is None else max(1, -(-self.total // ROWS_OF_A_PAGE))

    @property
    def why_empty(self) -> str:
        """Say what to do where there are no rows, or that there is no such page."""
        if self.number > self.pages:
            return f"There is no page {self.number:,}: the last one is page {self.pages:,}."
        return self.empty

    def as_csv(self) -> str:
        """Return it as RFC 4180 has it, all in quotes; what would be a formula is marked."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
        writer.writerow(self.columns)
        writer.writerows([_plain(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def _plain(cell: Any) -> str:
    if isinstance(cell, datetime):
        return cell.astimezone(UTC).isoformat()
    text = cell.text if isinstance(cell, Link) else "" if cell is None else str(cell)
    return _FORMULA.sub("'", text) if isinstance(cell, str | Link) else text


def page_of(
    rows: Sequence[Sequence[Any]], columns: Sequence[str], number: int, empty: str
) -> Listing:
    """Return one page of a table of which all rows are at hand."""
    begin = (max(1, number) - 1) * ROWS_OF_A_PAGE
    shown = rows[begin : begin + ROWS_OF_A_PAGE]
    return Listing(columns, shown, empty, total=len(rows), number=max(1, number))


@dataclass(frozen=True)
class Place:
    """Where a request went, and the addresses of our pages from there."""

    request: Request

    @property
    def root(self) -> str:
        """The path below which all pages are, whatever stands before Airflow."""
        return str(self.request.scope.get("root_path", ""))

    @property
    def path(self) -> str:
        """The path below that of all pages, without slashes around it."""
        return self.request.url.path.removeprefix(self.root).strip("/")

    @property
    def section(self) -> Section:
        """The entry of the navigation that this page belongs to."""
        first = self.path.partition("/")[0]
        return next((one for one in SECTIONS if one.path == first), SECTIONS[0])

    def url(self, path: str, /, **query: object) -> str:
        """Return the address of a page of ours; parameters that are None or empty are left out."""
        given = {name: value for name, value in query.items() if value not in (None, "", False)}
        return f"{self.root}/{path}" + (f"?{urlencode(given)}" if given else "")

    def airflow_url(self, *path: str) -> str:
        """Return the address of a page of Airflow's own, such as that of a run."""
        return "/".join([self.root.rpartition("/")[0], *(quote(one, safe="") for one in path)])

    def again(self, /, **query: object) -> str:
        """Return the address of this page with some other parameters, and no message."""
        return self.url(self.path, **{**self.request.query_params, "said": "", **query})

    def static(self, name: str) -> str:
        """Return the address of a script or a style sheet of this release."""
        return self.url(f"static/{__version__}/{name}")


@dataclass(frozen=True)
class Visit(Place):
    """A request to a page: who asks, of which installation, and when; what the page remembers."""

    user: BaseUser
    installation: Installation
    memory: Memory
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def name(self) -> str:
        """The user's name, as decisions have it."""
        return str(self.user.get_name())

    def may_run(self, dag: str) -> bool:
        """Tell whether forms of that DAG's actions are to be shown."""
        return access.may_run(self.user, dag)

    @property
    def sees_clients(self) -> bool:
        """Whether texts may be shown that name clients, or may do so."""
        return all(access.is_allowed(self.user, dag, "GET") for dag in access.CLIENTS)

    def token(self, path: str) -> str:
        """Return what the form of the action at that path carries."""
        return access.form_token(self.name, self.url(path))

    def answer(
        self,
        template: str,
        document: object = None,
        listing: Listing | None = None,
        *,
        status: int = 200,
        **values: object,
    ) -> Response:
        """Return the page: the document as JSON, the listing as CSV, or all of it as HTML."""
        wanted = self.request.query_params.get("format", "")
        if wanted == "json":
            return JSONResponse(json.loads(_json(document)), status, headers=HEADERS)
        if wanted == "csv" and listing is not None:
            headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{self._file()}"'}
            return PlainTextResponse(listing.as_csv(), media_type="text/csv", headers=headers)
        given = {"listing": listing, "document": document, **values}
        text = environment().get_template(template).render(visit=self, sections=SECTIONS, **given)
        return HTMLResponse(text, status, HEADERS)

    def _file(self) -> str:
        name = self.request.url.path.rstrip("/").rpartition("/")[2]
        return f"{name}-{self.now:%Y%m%dT%H%M%SZ}.csv"

    def back_to(self, path: str, said: str, **query: object) -> Response:
        """Return to a page after an action, which says there what was done."""
        url = self.url(path, **query, said=access.sealed(self.name, said))
        return RedirectResponse(url, 303, HEADERS)

    @property
    def said(self) -> str:
        """What the action said from which one comes here; nobody else can have it say anything."""
        return access.unsealed(self.name, self.request.query_params.get("said", ""))


def _json(document: object) -> str:
    return json.dumps(document, default=methodcaller("as_json"))


def _visit(request: Request, user: GetUserDep, _: Annotated[None, Depends(require_known)]) -> Visit:
    installation = task_installation()
    waits = ("kafka_timeout", "lock_wait")
    bounded = {name: min(getattr(installation.settings, name), MOST_SECONDS) for name in waits}
    own, app = installation.having(**bounded), request.app.state
    # As the request before had it: not each connects, or asks again whether Kafka admits it.
    app.installation = own.sharing(getattr(app, "installation", own))
    return Visit(request, user, app.installation, app.memory)


Asked = Annotated[Visit, Depends(_visit)]


def _given(reason: str) -> str:
    if not reason.strip():
        raise ValueError("expected a reason, found none")
    return reason


# Why somebody does something, in a form of an action.
Reason = Annotated[str, Form(max_length=500), AfterValidator(_given)]


def patient_installation() -> Installation:
    """Return the installation of tasks, for work that goes on after its answer."""
    return task_installation()


@cache
def environment() -> Environment:
    """Return what renders the templates."""
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {"Link": Link, "longest": LONGEST_CELL, "hidden": access.CLIENTS_HIDDEN}
    found.filters |= {
        "duration": duration_text,
        "counted": counted,
        "number": lambda value: f"{value:,}",
        "utc": lambda at: at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "iso": lambda at: at.astimezone(UTC).isoformat(),
        "kind": _kind,
        "harmless": harmless,
        "shown": lambda text: text and shown(text),
        "coded": _coded,
        "size": in_bytes,
    }
    return found


def _coded(text: str) -> Markup:
    """Return a text as HTML, in which what stands between backticks is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def _kind(cell: object) -> str:
    """Return how a cell is shown."""
    kinds: Mapping[type, str] = {Link: "link", datetime: "time", bool: "flag", int: "number"}
    return next((name for kind, name in kinds.items() if isinstance(cell, kind)), "text")
