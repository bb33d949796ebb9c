"""The page in the test's own process: our app, asked over HTTP, with a user whom a test names.

Airflow's login and rights are its own code's; tests/e2e has them for real, in a browser. With
`--all`, a browser sends the forms here, too.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from html import unescape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from shardpost.settings import Declared, Settings
from tests.support.browser_forms import BrowserForms
from tests.support.how_far import is_every
from tests.support.installed import installed

if TYPE_CHECKING:
    from fastapi import FastAPI

FORM = re.compile(r'<form[^>]* method="post" action="([^"]+)">(.*?)</form>', re.DOTALL)
_free: "list[FastAPI]" = []  # apps of clients that are closed
HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


class PageClient:
    """Asks for pages, and sends the forms that stand on them."""

    def __init__(self, client: TestClient, browser: BrowserForms | None) -> None:
        self._client, self._browser, self._shown = client, browser, ""

    def get(self, path: str, status: int = 200, **query: object) -> str:
        """Return a page as text, after its status was compared."""
        found = self._asked(path, query)
        assert found.status_code == status, unescape(found.text)
        return unescape(found.text)

    def response(self, path: str, **query: object) -> Response:
        """Return the answer as it is, with its headers, and what is escaped in it."""
        return self._asked(path, query).raise_for_status()

    def json(self, path: str, **query: object) -> Any:
        """Return the same page's document."""
        return self._asked(path, {**query, "format": "json"}).raise_for_status().json()

    def csv(self, path: str, **query: object) -> list[str]:
        """Return the same page's listing, line by line."""
        return self._asked(path, {**query, "format": "csv"}).raise_for_status().text.splitlines()

    def send(
        self, on: str | None, action: str, status: int = 200, **fields: str | list[str]
    ) -> str:
        """Send the form of an action as it stands on a page; return the page that one sees then.

        `on`: the page's path; None for the page that the last form has led to.
        """
        if self._browser is not None:
            shown = self._browser.send(on, action, fields, status >= HTTPStatus.BAD_REQUEST)
            assert shown.status == status, unescape(shown.text())
            return unescape(shown.text())
        stands_on = self._shown if on is None else self._asked(on, {}).text
        forms = {unescape(url): dict(HIDDEN.findall(text)) for url, text in FORM.findall(stands_on)}
        hidden = forms.get(f"/shardpost/{action}")
        assert hidden is not None, f"no form of {action} on {on}: {sorted(forms)}"
        data = {name: unescape(value) for name, value in hidden.items()} | fields
        sent = self._client.post(action, data=data)
        assert sent.status_code == status, unescape(sent.text)
        self._shown = sent.text
        return unescape(sent.text)

    def raw(self, path: str, **query: object) -> Response:
        """Return a page as it was answered."""
        return self._asked(path, query).raise_for_status()

    def post(self, action: str, data: dict[str, str], **headers: str) -> Response:
        """Send what no form of ours sends."""
        found: Response = self._client.post(action, data=data, headers=headers)
        return found

    def _asked(self, path: str, query: dict[str, Any]) -> Response:
        # Parameters that are none would take the place of those in the path.
        found: Response = self._client.get(path, params=query or None)
        return found


@contextmanager
def page_client(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    user: str = "admin",
    role: str = "admin",
    *,
    sees: Collection[str] | None = None,
) -> Iterator[PageClient]:
    """Give a client of a user with a role of Airflow's: viewer, user, op or admin.

    `sees`: the only DAGs that the user has rights on.
    """
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import FastAPI

    from shardpost.page import access, redrives, request

    inner, outer = _app(), FastAPI()
    inner.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username=user, role=role)
    outer.mount("/shardpost", inner)
    may = {"GET"} if role == "viewer" else {"GET", "POST"}
    monkeypatch.setattr(
        access,
        "is_allowed",
        lambda _user, dag, method, *_: method in may and (sees is None or dag in sees),
    )
    for module in (request, redrives):
        monkeypatch.setattr(module, "task_installation", lambda _: installed(settings))
    browser = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
    base = "http://airflow.test/shardpost/"
    with ExitStack() as running:
        client = running.enter_context(TestClient(outer, base_url=base, headers=browser))
        is_browsed = is_every() and not installed(settings).kafka.is_in_process  # it has a socket
        forms = running.enter_context(BrowserForms(outer)) if is_browsed else None
        yield PageClient(client, forms)
    _free.append(inner)


def _app() -> "FastAPI":
    """Return an app with our pages that no other client has now, and with a memory of its own.

    To make one takes longer than most tests of a page.
    """
    from fastapi import FastAPI

    from shardpost.page import request, site

    if not _free:
        _free.append(FastAPI())
        site.add_to(_free[0], Declared())
    found = _free.pop()
    found.state.memory = request.Memory()
    return found
