"""What all pages do with what readers send, and with what others hold; Kafka in memory."""

from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from shardpost.alerts import telling
from shardpost.alerts.model.alert import REPORTED, Condition
from shardpost.lag import measure
from shardpost.lag.model.report import Lag, LagRow
from shardpost.locks import exclusive
from shardpost.page import rendering
from shardpost.page.rendering import Link, Listing
from shardpost.run_requests.dispatch import dispatch_lock
from shardpost.settings import Settings
from shardpost.topics.model.finding import Severity
from tests.support.page_client import page_client

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)


@pytest.mark.parametrize("name", ["self", "path", "query", "said", "visit"])
def test_a_parameter_may_have_any_name(
    at: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with page_client(at, monkeypatch) as page:
        shown = page.get(f"alerts?{name}=elsewhere")
        assert "/shardpost/alerts?" in shown
        for form in ("json", "csv"):
            page.get(f"alerts?{name}=elsewhere&format={form}")


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("plain", '"plain"'),
        ('a "b", c', '"a ""b"", c"'),
        ("=1+1", '"\'=1+1"'),
        (Link("@x", "/url"), '"\'@x"'),
        ("x;=cmd|' /C calc'!A0", "\"x;'=cmd|' /C calc'!A0\""),
        ("x\t-1\r\n+2", "\"x\t'-1\r\n'+2\""),
        ("a; -5 of 7-8", '"a; -5 of 7-8"'),
        (None, '""'),
        (-7, "-7"),
        (0.5, "0.5"),
        (True, '"True"'),
        (NOW, '"2026-11-23T08:00:00+00:00"'),
    ],
)
def test_csv_has_text_in_quotes_and_no_formula(cell: object, written: str) -> None:
    assert Listing(("a",), [(cell,)]).as_csv() == f'"a"\r\n{written}\r\n'


def test_a_run_is_requested_by_who_may_run_that_dag(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"key": "weekly_email/2026-W47", "conf": "{}"}
    may = ["dispatch_run_requests", "compact_positions"]
    with page_client(at, monkeypatch, sees=may) as page:
        shown = page.get("runs")
        assert "<option>compact_positions</option>" in shown
        assert "<option>weekly_email</option>" not in shown
        refused = page.send("runs", "runs/request", 403, dag="weekly_email", **form)
        assert "for users who may run the DAG weekly_email" in refused
        said = page.send("runs", "runs/request", dag="compact_positions", **form)
        assert "Not processed yet" in said


def test_an_action_waits_no_longer_for_a_lock_than_a_page_does(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "MOST_SECONDS", 0.01)
    found = Condition("task-failed", "d t", Severity.RISK, "x", "m", REPORTED)
    telling.report(at, found, NOW)
    key = quote("task-failed:d t")
    with page_client(at, monkeypatch) as page:
        token = rendering.access.form_token("admin", "/shardpost/runs/release")
        with dispatch_lock(at), exclusive(at, telling.LOCK, "telling people"):
            sent = page.post("runs/release", {"token": token, "key": "k", "why": "w"})
            fields = {"key": "task-failed:d t", "duration": "2h", "why": "w"}
            busy = page.send(f"alerts/one?key={key}", "alerts/silence", 503, **fields)
    assert sent.status_code == 503
    assert "the dispatch of run requests" in sent.text
    assert "telling people" in busy


def test_what_is_not_known_of_a_partition_is_not_called_safe(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "not known: retention.bytes counts, and the partition's size is not known"
    row = LagRow("g", "t", 0, 0, 5, 5, 1.0, None, why)
    monkeypatch.setattr(measure, "measure", lambda *_, **__: Lag([row]))
    with page_client(at, monkeypatch) as page:
        shown = page.get("topics/lag", group="g", topic="t", now=1)
    assert "<td><bdi>not known</bdi></td>" in shown
    assert "nothing can be lost" not in shown
