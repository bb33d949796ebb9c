"""A request to a page: who asks, of which installation, when, with which parameters; its answer.

Parameters of addresses may be empty, as a form leaves them; a page has none but its own.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from annotated_types import Ge, Le
from fastapi import Depends, Form, Query, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from markupsafe import Markup
from pydantic import AfterValidator, BeforeValidator

from shardpost import __version__
from shardpost.dead_letters.letter_index import KeptIndex
from shardpost.errors import UsageError
from shardpost.installation import Declared, Installation
from shardpost.instants import parse_instant
from shardpost.orchestration.connections import task_installation
from shardpost.page import access
from shardpost.page.rendering import HEADERS, SECTIONS, Listing, environment, runbook_html
from shardpost.run_requests.model.requests import airflow_id
from shardpost.weekly_email.kept_statuses import KeptStatuses
from shardpost.wording import json_text

# Who waits for a page waits no longer for Kafka, nor for what others are doing.
MOST_SECONDS = 5.0
# Nor, where a page is useful without Kafka, for a broker that does not listen.
LISTEN_SECONDS = 0.2
MAX_OFFSET = 2**63 - 1


def _given(text: Any) -> Any:
    return text if text != "" else None


# None where the field was left empty; an instant without a zone is UTC.
Number = Annotated[Annotated[int, Ge(0), Le(MAX_OFFSET)] | None, BeforeValidator(_given), Query()]
Instant = Annotated[
    datetime | None, BeforeValidator(lambda text: text and parse_instant(text.strip())), Query()
]
Text = Annotated[str | None, BeforeValidator(_given), Query()]
Required = Annotated[str, Query(min_length=1)]
PageNumber = Annotated[int, Query(ge=1, le=10**9)]


async def require_known(request: Request) -> None:
    """Refuse parameters and fields that a page does not have: a misspelt filter would mean all."""
    route, form = request.scope["route"], await request.form()
    asked = {"format", "said"}.union(one.alias for one in get_flat_params(route.dependant))
    body = route.body_field and route.body_field.field_info.annotation
    sent = {"token", *(body.model_fields if body else ())}
    for known, given in ((asked, request.query_params), (sent, form)):
        if unknown := sorted({*given} - known):
            names = ", ".join(sorted(known))
            raise UsageError(f"{unknown[0]}: expected one of {names}, found this parameter")


@dataclass(frozen=True)
class Memory:
    """The memory of one app: the index of letters, and the statuses of weeks."""

    letters: KeptIndex = field(default_factory=KeptIndex)
    ledger: KeptStatuses = field(default_factory=KeptStatuses)


@dataclass(frozen=True)
class PageContext:
    """Where a request went, and the addresses of our pages from there."""

    request: Request

    @property
    def root(self) -> str:
        """The path below which all pages are, whatever stands before Airflow."""
        return str(self.request.scope.get("root_path", ""))

    @property
    def own(self) -> Declared:
        """The installation that the page is of."""
        own: Declared = self.request.app.state.own
        return own

    @property
    def path(self) -> str:
        """The path below that of all pages, without slashes around it."""
        return self.request.url.path.removeprefix(self.root).strip("/")

    @property
    def section(self) -> str:
        """The path of the entry of the navigation that this page belongs to."""
        first = self.path.partition("/")[0]
        return first if first in SECTIONS else ""

    def url(self, path: str, /, **query: object) -> str:
        """Return the address of a page of ours; parameters that are None or empty are left out."""
        given = {name: value for name, value in query.items() if value not in (None, "", False)}
        return f"{self.root}/{path}" + (f"?{urlencode(given)}" if given else "")

    def dag_url(self, dag: str, *path: str) -> str:
        """Return the address of Airflow's page of a DAG, or of what is below that."""
        above = self.root.removesuffix(f"/{self.own.name}").rpartition("/")[0]
        below = [quote(one, safe="") for one in (airflow_id(dag, self.own.id), *path)]
        return "/".join([above, "dags", *below])

    def again(self, /, **query: object) -> str:
        """Return the address of this page with some other parameters, and no message."""
        return self.url(self.path, **{**self.request.query_params, "said": "", **query})

    def static(self, name: str) -> str:
        """Return the address of a script or a style sheet of this release."""
        return self.url(f"static/{__version__}/{name}")


@dataclass(frozen=True)
class PageRequest(PageContext):
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
        return access.may_run(self.user, airflow_id(dag, self.own.id))

    def may_see(self, dag: str) -> bool:
        """Tell whether what belongs to that DAG is to be shown."""
        return access.may_see(self.user, airflow_id(dag, self.own.id))

    @property
    def sees_clients(self) -> bool:
        """Whether texts may be shown that name clients, or may do so."""
        return all(map(self.may_see, access.CLIENTS))

    def token(self, path: str) -> str:
        """Return what the form of the action at that path carries."""
        return access.form_token(self.name, self.url(path))

    def runbook(self, rule: str) -> str:
        """Return the address of a rule's section of the runbook: of ours, unless one is set."""
        book = self.installation.settings.runbook
        is_address = book.startswith(("http://", "https://"))
        return f"{book if is_address else self.url('runbook') + '#'}{rule}"

    def runbook_section(self, rule: str) -> Markup:
        """Return what our runbook says of a rule, as HTML; nothing if it has no such section."""
        begun = runbook_html().partition(f'<h3 id="{rule}">')[2].partition("</h3>")[2]
        section = re.split("<h[1-3]", begun, maxsplit=1)[0]
        linked = section.replace('href="#', f'href="{self.url("runbook")}#')
        return Markup(linked)  # noqa: S704 - it is ours

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
            return Response(json_text(document), status, HEADERS, "application/json")
        if wanted == "csv" and listing is not None:
            name = self.request.url.path.rstrip("/").rpartition("/")[2]
            file = f"{name}-{self.now:%Y%m%dT%H%M%SZ}.csv"
            headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{file}"'}
            return PlainTextResponse(listing.as_csv(), media_type="text/csv", headers=headers)
        given = {"listing": listing, "document": document, **values}
        text = environment().get_template(template).render(visit=self, sections=SECTIONS, **given)
        return HTMLResponse(text, status, HEADERS)

    def back_to(self, path: str, said: str, **query: object) -> Response:
        """Return to a page after an action, which says there what was done."""
        url = self.url(path, **query, said=access.sealed(self.name, said))
        return RedirectResponse(url, 303, HEADERS)

    @property
    def said(self) -> str:
        """What the action said from which one comes here; nobody else can have it say anything."""
        return access.unsealed(self.name, self.request.query_params.get("said", ""))


def _visit(
    request: Request, user: GetUserDep, _: Annotated[None, Depends(require_known)]
) -> PageRequest:
    installation = task_installation(request.app.state.own)
    waits = ("kafka_timeout", "lock_wait")
    bounded = {name: min(getattr(installation.settings, name), MOST_SECONDS) for name in waits}
    own, app = installation.having(**bounded), request.app.state
    # As the request before had it: not each connects, or asks again whether Kafka admits it.
    app.installation = own.sharing(getattr(app, "installation", own))
    return PageRequest(request, user, app.installation, app.memory)


CurrentRequest = Annotated[PageRequest, Depends(_visit)]


def _reason(reason: str) -> str:
    if not reason.strip():
        raise ValueError("expected a reason, found none")
    return reason


# Why somebody does something, in a form of an action.
Reason = Annotated[str, Form(max_length=500), AfterValidator(_reason)]
