"""What all pages have in common: who may see and act, whose forms are taken, their headers."""

from typing import Any

import pytest
from fastapi import HTTPException

from shardpost.page import access
from shardpost.page.rendering import SECTIONS
from shardpost.settings import Settings
from tests.support.page_client import PageClient, page_client

ACTION = "alerts/silence"
FIELDS = {"key": "a", "duration": "2h", "why": "because"}


@pytest.mark.parametrize("path", [one.path for one in SECTIONS[1:2]])
def test_without_a_table_a_page_says_what_to_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with page_client(settings, monkeypatch) as page:
        assert "no snapshot" in page.get(path, status=503)


def token_of(user: str, action: str = ACTION) -> dict[str, str]:
    return FIELDS | {"token": access.form_token(user, f"/shardpost/{action}")}


def refused(page: PageClient, fields: dict[str, str], **headers: str) -> str:
    found = page.post(ACTION, fields, **headers)
    assert found.status_code == 403
    return found.text


def test_forms_that_no_page_of_this_user_made_change_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch, user="anna") as page:
        assert "expected a form of this page" in refused(page, FIELDS)
        assert "expected a form of this page" in refused(page, FIELDS | {"token": "x.y.z"})
        assert "of this user and action" in refused(page, token_of("bert"))
        assert "of this user and action" in refused(page, token_of("anna", "alerts/unsilence"))
        assert "form of this site" in refused(
            page, token_of("anna"), **{"Sec-Fetch-Site": "cross-site"}
        )
        own = token_of("anna")
        monkeypatch.setattr(access, "FORM_SECONDS", -1)
        assert "older than an hour" in refused(page, own)


def test_a_browser_that_says_no_site_is_held_to_its_origin() -> None:
    class Request:
        def __init__(self, **headers: str) -> None:
            self.headers = headers

    def refuses(**headers: str) -> bool:
        request: Any = Request(**headers)
        try:
            access._require_same_origin(request)
        except HTTPException as error:
            return error.status_code == 403
        return False

    assert refuses(origin="https://evil.test", host="airflow.test")
    assert not refuses(origin="https://airflow.test", host="airflow.test")
    assert not refuses()


def test_nobody_else_can_have_a_page_say_that_something_was_done() -> None:
    assert access.unsealed(access.sealed("1 letter redriven")) == "1 letter redriven"
    assert access.unsealed("1 letter redriven") == ""
    assert access.unsealed(access.form_token("anna", "/shardpost/alerts")) == ""


def test_pages_are_kept_by_nobody_and_load_nothing_from_elsewhere(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch) as page:
        headers = page.response("alerts").headers
        assert headers["Cache-Control"] == "no-store"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        with pytest.raises(Exception, match="404"):
            page.response("static/x/..%2Fsite.py")
        assert page.get("holders", 400, page="none").count("page: ")
