"""What all pages have in common: who may see and act, whose forms are taken, their headers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException

from shardpost.embedded import demo
from shardpost.page import access
from shardpost.page.record_outcomes import record_link, topic_link
from shardpost.page.rendering import SECTIONS, Link
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed
from tests.support.page_client import PageClient, page_client

ACTION = "alerts/silence"
FIELDS = {"key": "a", "duration": "2h", "why": "because"}


@pytest.mark.parametrize("path", [*SECTIONS][1:2])
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
        assert "expected a form from this page" in refused(page, FIELDS)
        assert "expected a form from this page" in refused(page, FIELDS | {"token": "x.y.z"})
        assert "for another user or action" in refused(page, token_of("bert"))
        assert "for another user or action" in refused(page, token_of("anna", "alerts/unsilence"))
        assert "form from this site" in refused(
            page, token_of("anna"), **{"Sec-Fetch-Site": "cross-site"}
        )
        own = token_of("anna")
        monkeypatch.setattr(access, "FORM_SECONDS", -1)
        late = refused(page, own)
        assert "older than an hour" in late
        assert ">because</pre>" in late


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
    done = access.sealed("anna", "1 letter redriven")
    assert access.unsealed("anna", done) == "1 letter redriven"
    assert access.unsealed("bert", done) == ""
    assert access.unsealed("anna", "1 letter redriven") == ""
    assert access.unsealed("anna", access.form_token("anna", "/shardpost/alerts")) == ""


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


@pytest.mark.parametrize(
    ("path", "asked", "said"),
    [
        ("holders", {"page": "none"}, "page: should be a valid integer, found 'none'"),
        ("holders", {"shard": "x" * 99}, f"shard: should be a valid integer, found '{'x' * 50}'"),
        ("holders", {"page": 0}, "page: should be greater than or equal to 1, found '0'"),
        (
            "records",
            {"offset": 2**63},
            f"offset: should be less than or equal to {2**63 - 1}, found '",
        ),
        ("holders/client", {"client": ""}, "client: should have at least 1 character, found none"),
        ("holders/client", {}, "client: field required, found none"),
        (
            "emails/start",
            {"week": "2026-W47", "again": "some"},
            "again: expected one of FAILED, SUPPRESSED, found 'some'",
        ),
        (
            "emails/start",
            {"week": "2026-W47", "early": "x"},
            "early: should be a valid boolean, found",
        ),
    ],
)
def test_what_is_wrong_with_a_parameter_is_x(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, path: str, asked: dict[str, Any], said: str
) -> None:
    with page_client(settings, monkeypatch) as page:
        assert said in page.get(path, 400, **asked)


def test_a_refused_form_shows_what_was_sent(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch, user="anna") as page:

        def refused_of(action: str, **fields: str) -> str:
            own = fields | {"token": access.form_token("anna", f"/shardpost/{action}")}
            found = page.post(action, own)
            assert found.status_code == 400
            return found.text

        typed = {"key": "a", "duration": "2 hours", "why": "<b>because</b>"}
        refused = refused_of(ACTION, **typed)
        assert 'href="/shardpost/alerts">Alerts' in refused
        assert ">2 hours</pre>" in refused
        assert ">&lt;b&gt;because&lt;/b&gt;</pre>" in refused
        assert "token" not in refused
        assert "what was sent" not in page.post(ACTION, typed).text.lower()
        refused = refused_of("runs/request", key="k", dag="d", conf="no")
        assert "params: expected a JSON object, found &#39;no&#39;" in refused


def test_only_records_of_our_own_topics_are_linked(settings: Settings) -> None:
    visit: Any = SimpleNamespace(installation=installed(settings), url=lambda path, **_: path)
    own = settings.topic("positions")
    assert topic_link(visit, own) == Link(own, "records")
    assert topic_link(visit, "orders") == "orders"
    assert record_link(visit, own, 3, 8) == Link(f"{own}[3]@8", "records/record")
    assert record_link(visit, "orders", 3, 8) == "orders[3]@8"


def test_a_value_of_avro_is_shown_as_json(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings.model_copy(update={"partitions": 1, "inputs": tmp_path / "inputs.yml"})
    apply_topics(installed(own))
    topic = own.topic("positions")
    with demo.schema_registry() as url, page_client(own, monkeypatch) as page:
        (tmp_path / "inputs.yml").write_text(demo.INPUTS.format(url=url))
        demo.produce(own, demo.POSITIONS[:1])
        listed = page.get("records", topic=topic)
        alone = page.get("records/record", topic=topic, partition=0, offset=0)
    for text in (listed, alone):
        assert '"customer_id": "client1"' in text
    assert "AVRO of schema ids/2, as JSON" in alone


def test_what_does_not_exist_is_not_found_and_leads_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch) as page:
        for path in ("nope", "tables/nope", "holders?snapshot=99", "alerts/one?key=nope"):
            found = page.get(path, 404)
            assert "<h1>Not found</h1>" in found
            assert 'href="/shardpost/">Overview' in found
        assert "there is no page /shardpost/tables/nope" in page.get("tables/nope", 404)
        assert "it only accepts forms" in page.get("alerts/silence", 405)
