"""The page of run requests on a real broker; the Airflow is the test's own."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from shardpost.decisions import Kind
from shardpost.run_requests.request_client import commands_in_force
from shardpost.settings import Settings
from tests.support import decisions
from tests.support.airflow_server import AirflowServer
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed
from tests.support.page_client import page_client
from tests.support.run_requests import KEY, ask, request, run

HOSTILE = "<script>alert(1)</script>"


def test_a_run_is_asked_for_seen_in_conflict_and_released(
    askable: Settings, airflow: AirflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(askable, monkeypatch, user="anna") as page:
        assert "No run is waiting or running" in page.get("runs")
        page.send("runs", "runs/request", 400, key=KEY, dag="weekly_email", conf="[1]")
        asked: dict[str, Any] = {"key": KEY, "dag": "weekly_email", "conf": '{"week": "2026-W47"}'}
        waiting = page.send("runs", "runs/request", **asked)
        assert "Not processed yet" in waiting
        assert "data-refresh" in waiting
        run(askable)
        [started] = airflow.started
        conf = airflow.runs["weekly_email", started]["conf"]
        assert conf == {"week": "2026-W47"}
        again = page.send("runs", "runs/request", **asked)
        run(askable)
        assert started in again
        assert "data-refresh" not in again
        other = {**asked, "conf": json.dumps({"week": HOSTILE})}
        page.send("runs", "runs/request", **other)
        run(askable)
        assert page.json("runs") == CommandLineHere(askable.environ()).json("runs", "list")
        shown = page.get("runs")
        assert f'href="/dags/weekly_email/runs/{quote(started, safe="")}"' in shown
        assert "conflict" in shown
        assert "As of the last dispatch." in page.get("runs/key", key=KEY)
        on = f"runs/key?key={KEY}"
        page.send(on, "runs/release", 400, key=KEY, why="  ")
        other_run = page.send(on, "runs/release", 503, run="another", why="it hangs")
        assert f"expected run another, found the newer run {started}" in other_run
        said = page.send(on, "runs/release", key=KEY, why="it hangs")
        assert f"released: {KEY}; run {started}" in said
        assert "The next request with this key runs" in page.get("runs/key", key=KEY)
    assert commands_in_force(installed(askable).kafka) == []
    found = [(one.kind, one.who) for one, _ in decisions.list_all(askable)]
    assert found == [(Kind.CONFLICT, "shardpost"), (Kind.RELEASED, "anna")]


def test_the_outcome_of_a_request_is_on_the_page_of_its_key(
    askable: Settings, airflow: AirflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    del airflow
    ask(askable, KEY, request())
    ask(askable, HOSTILE, request(dag="no_such_dag"))
    run(askable)
    with page_client(askable, monkeypatch) as page:
        [won] = page.json("runs/key", key=KEY)
        assert (won["state"], won["requested_by"]) == ("started", "anna")
        refused = page.get("runs/key", key=HOSTILE)
        assert "cannot be requested" in refused
        assert "data-refresh" not in refused
        assert (
            HOSTILE not in page.response("runs").text + page.response("runs/key", key=HOSTILE).text
        )
        assert any(HOSTILE in line for line in page.csv("runs/key", key=HOSTILE))


def test_a_viewer_has_no_form_and_is_refused(
    askable: Settings, airflow: AirflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    del airflow
    ask(askable, KEY, request())
    run(askable)
    with page_client(askable, monkeypatch, role="viewer") as page:
        assert 'action="' not in page.get("runs") + page.get("runs/key", key=KEY)
        for action in ("runs/request", "runs/release"):
            assert page.post(action, {"key": KEY, "dag": "x", "why": "x"}).status_code == 403
    assert len(commands_in_force(installed(askable).kafka)) == 1
