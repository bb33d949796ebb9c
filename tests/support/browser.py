"""A real browser, Debian's Chromium, that is logged in to an Airflow."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, sync_playwright

# Nothing of it speaks to anybody but the page.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = ViewportSize(width=1400, height=900), ViewportSize(width=400, height=800)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Give a browser; skip the test on a machine that has none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs a browser (Debian: apt-get install --no-install-recommends chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*FLAGS])
        try:
            yield browser
        finally:
            browser.close()


def log_in(page: Page, user: str, password: str) -> None:
    """Fill in Airflow's form of a login, which the page shows."""
    page.locator("input[name=username]").fill(user)
    page.locator("input[name=password]").fill(password)
    page.keyboard.press("Enter")


class Console:
    """What a page complains of in the browser's console, such as what its policy forbids."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)
