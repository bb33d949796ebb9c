"""Forms of the page, filled in and sent by a real browser: `page_client` does so with `--all`."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Locator, Page, Response

from shardpost.embedded.daemons import choose_port
from tests.support.browser import WIDE, chromium
from tests.support.job_process import wait_for

Fields = Mapping[str, str | list[str]]
HOST = "127.0.0.1"


class BrowserForms:
    """A browser that looks at an app; both begin with the first form that is sent."""

    def __init__(self, app: FastAPI) -> None:
        self._app, self._running = app, ExitStack()

    @cached_property
    def _page(self) -> Page:
        return self._running.enter_context(page_of(self._app))

    def __enter__(self) -> "BrowserForms":
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what has begun."""
        self._running.close()

    def send(self, on: str | None, action: str, fields: Fields, is_refused: bool) -> Response:
        """Fill in the form of an action on a page, press its button; return what is shown then.

        If `is_refused` by the server, the browser is not to be before it.
        """
        if on is not None:
            self._page.goto(on)
        form = self._form(action, fields)
        form.evaluate("(form, is) => { form.noValidate = is; }", is_refused)
        for name, value in fields.items():
            _fill(form.locator(f'[name="{name}"]'), value)
        with self._page.expect_navigation() as shown:
            form.locator("button[type=submit]").click()
        return shown.value

    def _form(self, action: str, fields: Fields) -> Locator:
        """Return the first form of the action that has all fields."""
        forms = self._page.locator(f'form[action="/shardpost/{action}"]').all()
        fitting = [
            form
            for form in forms
            if all(form.locator(f'[name="{name}"]').count() for name in fields)
        ]
        assert fitting, f"no form of {action} with {[*fields]} among {len(forms)}"
        return fitting[0]


def _fill(field: Locator, value: str | list[str]) -> None:
    kind = field.first.get_attribute("type")
    if kind in ("checkbox", "radio"):
        chosen = {value} if isinstance(value, str) else {*value}
        for box in field.all():
            box.set_checked(box.get_attribute("value") in chosen)
    elif kind == "hidden":
        field.first.evaluate("(field, value) => { field.value = value; }", value)
    elif field.first.evaluate("field => field.tagName") == "SELECT":
        field.first.select_option(value)
    else:
        assert isinstance(value, str)
        field.first.fill(value)


@contextmanager
def page_of(app: FastAPI) -> Iterator[Page]:
    """Serve an app from this process, and give a browser's page that looks at it."""
    port = choose_port()
    server = uvicorn.Server(uvicorn.Config(app, HOST, port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "the app")
        with chromium() as browser:
            base = f"http://{HOST}:{port}/shardpost/"
            with browser.new_context(viewport=WIDE, base_url=base) as context:
                yield context.new_page()
    finally:
        server.should_exit = True
        thread.join()
