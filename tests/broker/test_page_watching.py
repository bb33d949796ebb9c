"""The pages of what is watched: overview, alerts, topics; on a real broker, with real tables."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from shardpost.alerts import history, notifier
from shardpost.alerts.model.alert import REPORTED, Condition
from shardpost.alerts.model.metrics import Measure
from shardpost.decisions import Kind
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.topics.model.finding import Severity
from tests.support import decisions, written_weeks
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.page_client import page_client

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 10_000


@pytest.fixture
def ready(settings: Settings) -> Settings:
    made = settings.model_copy(update={"partitions": 1, "kafka_timeout": 10.0})
    apply_topics(installed(made))
    return made


def report(settings: Settings, rule: str, subject: str, severity: Severity = Severity.RISK) -> None:
    found = Condition(rule, subject, severity, f"{subject} was found", "what it means", REPORTED)
    notifier.report(installed(settings), found, datetime.now(UTC))


def test_alerts_are_shown_silenced_and_told_again_on_record(
    ready: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(ready, "letters-parked", "positions")
    report(ready, "task-failed", HOSTILE, Severity.LOSS)
    key = "letters-parked:positions"
    with page_client(ready, monkeypatch, user="anna") as page:
        listed = page.json("alerts")
        assert listed == CommandLineHere(ready.environ()).json("alerts", "list")[::-1]
        assert [one["severity"] for one in listed] == ["loss", "risk"]
        shown = page.get("alerts")
        assert "<script>alert" not in page.response("alerts").text
        assert "positions was found" in shown
        one = page.get("alerts/one", key=key)
        assert "What to do" in one
        assert "redrive or" in one
        assert "/shardpost/runbook#letters-parked" in one
        assert "alerts.log" in one
        on = f"alerts/one?key={key}"
        page.send(on, "alerts/silence", 400, key=key, duration="2h", why=" ")
        for duration in ("2y", "2 hours", "0h"):
            refused = page.send(on, "alerts/silence", 400, key=key, duration=duration, why="x")
            assert f"duration '{duration}': expected " in refused
        said = page.send(on, "alerts/silence", key=key, duration="2h", why="we know")
        assert f"{key}: silenced until" in said
        assert page.json("alerts")[-1]["silenced_by"] == "anna"
        assert "1 alert silenced" in page.get("")
        said = page.send(on, "alerts/unsilence", key=key, why="we do not")
        assert "no longer silenced" in said
        assert page.csv("alerts")[0].startswith('"alert","severity","since"')
        assert "no alert gone is firing" in page.get("alerts/one", 404, key="gone")
    found = [(one.about, one.kind, one.who, one.why) for one, _ in decisions.list_all(ready)]
    about = f"alert/{key}".encode()
    assert found == [
        (about, Kind.SILENCED, "anna", "we know"),
        (about, Kind.UNSILENCED, "anna", "we do not"),
    ]
    with page_client(ready, monkeypatch, role="viewer") as page:
        assert 'action="' not in page.get("alerts/one", key=key)
        sent = page.post("alerts/silence", {"key": key, "duration": "2h", "why": "x"})
        assert sent.status_code == 403


def test_the_overview_of_an_empty_home_says_what_to_do_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch) as page:
        shown = page.get("")
        assert "What to do first" in shown
        assert "Nothing needs a person." in shown
        assert "Nothing is firing" in page.get("alerts")


def test_the_overview_has_what_needs_a_person_worst_first_also_where_kafka_is_away(
    ready: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    written_weeks.hold(ready, ["a", "b"], {"a": "a@x.example"}, now - timedelta(hours=1))
    report(ready, "emails-unknown", "2026-W47")
    report(ready, "data-lost", "readers positions", Severity.LOSS)
    lag = {"group": "readers", "topic": "positions"}
    measures = [
        *(Measure("source_up", 1, {"source": name}) for name in ("lag", "emails", "letters")),
        *(Measure("source_up", 1, {"source": name}) for name in ("runs", "sizes")),
        Measure("least_time_to_loss_seconds", 4 * 3600 + 59, lag),
        Measure("records_behind", 12, lag),
        Measure("emails", 7, {"week": "2026-W47", "state": "sent"}),
        Measure("emails", 1, {"week": "2026-W47", "state": "unknown"}),
        Measure("letters", 3, {"state": "parked"}),
        Measure("letters", 0, {"state": "waiting"}),
        Measure("runs", 2, {"state": "started"}),
        Measure("run_conflicts", 1, {}),
        Measure("table_bytes", 2_000_000, {"table": "clients"}),
    ]
    history.add_measures(installed(ready).tables, measures, now - timedelta(hours=2))
    failed = [Measure("source_up", 0, {"source": "letters"})]
    history.add_measures(installed(ready).tables, failed, now - timedelta(hours=1))
    away = ready.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    with page_client(away, monkeypatch) as page:
        found = page.json("")
        assert [(one["severity"], one["what"]) for one in found["needs"]] == [
            ("loss", "data-lost:readers positions"),
            *(("risk", what) for what in ("watch", "emails-unknown:2026-W47", "kafka")),
            ("drift", "run request conflicts"),
        ]
        assert found["needs"][0]["see"] == "/shardpost/topics/lag?group=readers&topic=positions"
        cards = re.findall(r">([\w -]+)<strong>([^<]+)</strong>", page.response("").text)
        assert dict(cards) == {
            "Snapshot": "1 h old",
            "Time to loss": "2 h",
            "Weekly e-mails": "7 of 8 sent",
            "Dead letters": "3",
            "Active run keys": "2",
            "Tables": "2.0 MB",
            "Alerts": "2",
        }
        shown = page.get("")
        lost_at = now + timedelta(hours=2, seconds=59)
        assert f"readers in positions, from about {lost_at:%Y-%m-%d %H:%M} UTC on" in shown
        assert "What to do first" not in shown
        assert "does not answer" in shown
        topics = page.get("topics")
        assert "127.0.0.1:1" in topics
        assert "readers" in topics
        unknown = page.get("topics/lag", group="nope", topic="positions")
        assert "had no offsets in topic" in unknown
        assert "as of" not in unknown
        reader = page.get("topics/lag", group="readers", topic="positions")
        assert "as of" in reader
        measured = page.json("topics/lag", group="readers", topic="positions")
        assert measured["records behind"] == 12


def test_topics_have_their_findings_with_the_fix(
    ready: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ready.topic("positions")
    configure_topic(ready, topic, {"cleanup.policy": "delete"})
    command = CommandLineHere(ready.environ())
    with page_client(ready, monkeypatch) as page:
        assert page.json("topics") == command.json("topics", "audit", code=3)
        shown = page.get("topics")
        assert f"/shardpost/records?topic={topic}" in shown
        assert "kafka-configs.sh" in shown
