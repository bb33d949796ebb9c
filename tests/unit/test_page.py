"""What all pages do with what readers send, and with what others hold; Kafka in memory."""

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote, urlencode

import playwright
import pytest
from confluent_kafka.admin import AdminClient

from shardpost.alerts import history, notifier
from shardpost.alerts.model.alert import REPORTED, Condition, Firing
from shardpost.alerts.model.metrics import Measure
from shardpost.commands.email import email_command
from shardpost.commands.parked_letters import redrive_command
from shardpost.kafka.kafka import Kafka
from shardpost.lag.model.time_to_loss import Lag, LagRow
from shardpost.locks.locks import exclusive
from shardpost.page import access, alerts, overview, record_outcomes, request, site
from shardpost.page.command_form import fields_of
from shardpost.page.rendering import Link, Listing, environment
from shardpost.run_requests.request_topics import LOCK
from shardpost.settings import Declared, Settings
from shardpost.topics.model.finding import Severity
from shardpost.watch import sources
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.page_client import page_client

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)


@pytest.mark.parametrize("name", ["self", "path", "query", "token", "visit", "Page"])
def test_a_parameter_that_a_page_does_not_have_is_refused(
    at: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with page_client(at, monkeypatch) as page:
        for form in ("", "json", "csv"):
            refused = page.get(f"alerts?{name}=elsewhere&format={form}", 400)
            assert f"{name}: expected one of format, page, said, found this" in refused
        page.get("alerts?said=elsewhere&page=1&format=json")


@pytest.mark.parametrize(
    "query",
    some(["do=discard&orign=orders", "do=discard&id=", "decision=discard", "Origin=orders"]),
)
@pytest.mark.parametrize("path", ["letters/plan", "letters/choose", "letters"])
def test_a_misspelt_filter_of_letters_is_not_all(
    at: Settings, monkeypatch: pytest.MonkeyPatch, path: str, query: str
) -> None:
    with page_client(at, monkeypatch) as page:
        assert ", found this parameter" in page.get(f"{path}?{query}", 400)


def test_a_misspelt_field_of_a_form_and_of_a_plan_is_not_all(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(at, monkeypatch) as page:

        def refused(action: str, **fields: str) -> str:
            token = access.form_token("admin", f"/shardpost/{action.partition('?')[0]}")
            sent = page.post(action, {"token": token, "why": "w", **fields})
            assert sent.status_code == 400
            return unescape(sent.text)

        said = refused("emails/start", week="2026-W47", shard="0-1")
        assert "shard: expected one of accept_drop, again, country_changed, dry_run, " in said
        said = refused("emails/start?shards=0-1", week="2026-W47")
        assert "shards: expected one of format, said, found this parameter" in said
        said = refused("letters/apply", plan="do=discard&orign=orders&up_to=x:0=9")
        assert "plan: expected a plan that was shown, found one with 'orign'" in said


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("letters/plan", "canary=0", "canary: 0 is not in the range x>=1."),
        ("letters/plan", "rate=inf", "rate: expected a finite number, found inf"),
        ("letters/plan", "since=never", "since: time 'never': expected ISO 8601"),
        ("letters/choose", "origin=&until=never", "until: time 'never': expected ISO 8601"),
        (
            "emails/start",
            "week=2026-W47&again=SENT",
            "again: expected one of FAILED, SUPPRESSED, found ",
        ),
        ("emails/start", "week=", "week: field required, found none"),
    ],
)
def test_what_a_form_takes_and_says_is_what_the_command_does(
    at: Settings, monkeypatch: pytest.MonkeyPatch, path: str, query: str, said: str
) -> None:
    with page_client(at, monkeypatch) as page:
        assert said in unescape(page.get(f"{path}?{query}", 400))


def test_fields_of_forms_have_the_texts_and_choices_of_options() -> None:
    fields = fields_of(email_command, ["again", "on_unknown", "early"])
    fields += fields_of(redrive_command, ["since"])
    macros = environment().get_template("macros.html").make_module({"visit": None})
    form = macros.options(fields, {"again": "FAILED", "since": "2026-11-23"})  # type: ignore[attr-defined]
    assert re.findall(r"<option[^>]*>[^<]*", form)[:3] == [
        '<option value="">by default',
        "<option selected>FAILED",
        "<option>SUPPRESSED",
    ]
    assert "<p>Also mail clients that FAILED before" in form
    assert '<label>On unknown <select name="on_unknown">' in form
    assert '<input type="checkbox" name="early" value="true"> Early' in form
    assert 'Since <input name="since" value="2026-11-23" maxlength="300">' in form
    assert "<p>Only letters parked since this time.</p>" in form


@pytest.mark.parametrize("shards", [" ", "\u00a0", ","])
def test_blank_shards_of_a_send_are_not_all(
    at: Settings, monkeypatch: pytest.MonkeyPatch, shards: str
) -> None:
    with page_client(at, monkeypatch) as page:
        refused = page.get("emails/start", 400, week="2026-W47", shards=shards)
    assert f"shards {shards!r}: expected a form such as 0-3, 2 or 0,2,5-7" in refused


@pytest.mark.parametrize("name", ["partition", "offset"])
def test_a_number_that_kafka_has_not_is_refused(
    at: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    query: dict[str, Any] = {name: 2**63}
    with page_client(at, monkeypatch) as page:
        refused = page.get("records", 400, topic="clients", **query)
    assert f"{name}: should be less than or equal to {2**63 - 1}, found '{2**63}'" in refused


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
        (-7, '"-7"'),
        (0.5, '"0.5"'),
        (True, '"True"'),
        (NOW, '"2026-11-23T08:00:00+00:00"'),
    ],
)
def test_csv_has_all_in_quotes_and_no_formula(cell: object, written: str) -> None:
    assert Listing(("a",), [(cell,)]).as_csv() == f'"a"\r\n{written}\r\n'


def test_a_run_is_requested_by_who_may_run_that_dag(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    form: dict[str, Any] = {"key": "weekly_email/2026-W47", "conf": "{}"}
    may = ["dispatch_run_requests", "compact_positions"]
    with page_client(at, monkeypatch, sees=may) as page:
        shown = page.get("runs")
        assert "<option>compact_positions</option>" in shown
        assert "<option>weekly_email</option>" not in shown
        refused = page.send("runs", "runs/request", 403, dag="weekly_email", **form)
        assert "for users who may run the DAG weekly_email" in refused
        said = page.send("runs", "runs/request", dag="compact_positions", **form)
        assert "Not processed yet" in said


def test_only_dags_of_ours_have_the_name_of_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(access, "is_allowed", lambda _user, dag, *_: asked.append(dag))
    app = SimpleNamespace(state=SimpleNamespace(own=Declared("us")))
    sent: Any = SimpleNamespace(app=app, scope={"root_path": "/shardpost/us"})
    visit = request.PageRequest(sent, cast(Any, None), cast(Any, None), cast(Any, None))
    for dag in ("reports", "weekly_email"):
        visit.may_run(dag)
        visit.may_see(dag)
    assert asked == ["reports", "reports", "us_weekly_email", "us_weekly_email"]
    assert visit.dag_url("reports", "runs") == "/dags/reports/runs"
    assert visit.dag_url("weekly_email") == "/dags/us_weekly_email"


def test_an_action_waits_no_longer_for_a_lock_than_a_page_does(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "MOST_SECONDS", 0.01)
    found = Condition("task-failed", "d t", Severity.RISK, "x", "m", REPORTED)
    notifier.report(installed(at), found, NOW)
    key = quote("task-failed:d t")
    with page_client(at, monkeypatch) as page:
        token = access.form_token("admin", "/shardpost/runs/release")
        with (
            exclusive(installed(at).files, LOCK, "the dispatch of run requests"),
            exclusive(installed(at).files, notifier.LOCK, "sending alerts"),
        ):
            sent = page.post("runs/release", {"token": token, "key": "k", "run": "r", "why": "w"})
            fields: dict[str, Any] = {"key": "task-failed:d t", "duration": "2h", "why": "w"}
            busy = page.send(f"alerts/one?key={key}", "alerts/silence", 503, **fields)
    assert sent.status_code == 503
    assert "the dispatch of run requests" in sent.text
    assert "sending alerts" in busy


def firing(name: str, severity: Severity, since: datetime, lost_in: float | None = None) -> Firing:
    loses_at = None if lost_in is None else since + timedelta(seconds=lost_in)
    condition = Condition(name, "", severity, "x", "m", loses_at=loses_at)
    return Firing(condition, since)


def test_what_is_lost_comes_first_then_what_is_lost_soonest(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    known = [
        firing("earlier-risk", Severity.RISK, now - timedelta(days=3)),
        firing("lost-in-3-h", Severity.RISK, now, 3 * 3600),
        firing("lost-in-48-min", Severity.RISK, now, 48 * 60 + 59),
        firing("later-loss", Severity.LOSS, now),
        firing("later-risk", Severity.RISK, now),
    ]
    history.store_firing(installed(at).tables, [], known, now)
    history.add_measures(installed(at).tables, [Measure("source_up", 1, {"source": "lag"})], now)
    ordered = ["later-loss", "lost-in-48-min", "lost-in-3-h", "earlier-risk", "later-risk"]
    with page_client(at, monkeypatch) as page:
        assert [one["what"] for one in page.json("")["needs"]] == ordered
        assert [one["key"] for one in page.json("alerts")] == ordered
        assert ">in 48 min</time>" in page.get("")


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (b"a\x1bb", Link("a\ufffdb", "/shardpost/holders/client?client=a%1Bb")),
        ("a\ufffdb".encode(), Link("a\ufffdb", "/shardpost/holders/client?client=a%EF%BF%BDb")),
        (b"a\xffb", "a\ufffdb"),
        (b"", ""),
        (None, None),
    ],
)
def test_a_key_leads_to_the_page_of_that_key_or_to_none(
    at: Settings, monkeypatch: pytest.MonkeyPatch, key: bytes | None, found: object
) -> None:
    visit = SimpleNamespace(
        installation=installed(at),
        may_see=lambda _: True,
        url=lambda path, **query: f"/shardpost/{path}?{urlencode(query)}",
    )
    topic = installed(at).topic("clients")
    assert record_outcomes.key_link(cast("Any", visit), topic, key) == found


# A page with a time and a form of two buttons; it counts how often the time is written.
DOCUMENT = """
const listeners = {}, timers = [], button = () => ({ disabled: false });
const listen = (own) => (name, act) => (own[name] ??= []).push(act);
const time = {
  written: 0, dateTime: new Date().toISOString(), classList: { contains: () => false },
  get textContent() { return this.text; },
  set textContent(text) { this.text = text; this.written += 1; },
};
const own = {}, buttons = [button(), button()], root = { dataset: {} };
const find = (what) => (what.startsWith("button") ? buttons : []);
const form = {
  addEventListener: listen(own), querySelectorAll: find, querySelector: () => buttons[0],
};
const found = { form: [form], "time[datetime]": [time] };
globalThis.document = {
  documentElement: root, head: { append() {} }, body: root, createElement: () => ({}),
  querySelector: () => null, addEventListener: listen(listeners),
  querySelectorAll: (what) => found[what] ?? find(what),
};
const matchMedia = () => ({ matches: false, addEventListener() {} });
const window = globalThis, parent = window;
globalThis.addEventListener = listen(listeners);
globalThis.setTimeout = (act) => timers.push(act);
globalThis.setInterval = (act) => act();
"""
CHECKS = """
const states = [], note = () => states.push(buttons.map((one) => one.disabled));
const fire = (all, name) => all[name].forEach((act) => act({ submitter: buttons[1] }));
fire(listeners, "DOMContentLoaded");
fire(own, "submit"); note();
timers.forEach((act) => act()); note();
fire(listeners, "pageshow"); note();
console.log(JSON.stringify([time.written, states]));
"""


def test_a_time_is_written_once_and_a_button_pressed_is_sent_before_it_is_disabled() -> None:
    node = Path(playwright.__file__).parent / "driver" / "node"
    script = (Path(site.__file__).parent / "static" / "page.js").read_text()
    command = [str(node), "-e", f"{DOCUMENT}\n{script}\n{CHECKS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [1, [[False, False], [True, True], [False, False]]]


def test_the_runbook_has_a_section_for_a_rule_and_links_to_nothing_that_is_not_here(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(at, monkeypatch) as page:
        text = page.get("runbook").partition("<article")[2]
        assert '<h3 id="letters-parked">' in text
        assert {url[0] for url in re.findall('href="([^"]+)"', text)} == {"#"}


def test_a_reader_that_loses_data_is_found_with_when_it_does(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = LagRow("g", "t", 0, 0, 5, 5, 1.0, 2880.0, "loses data in 48 min")
    monkeypatch.setattr(sources, "measure", lambda *_, **__: Lag([row]))
    [found] = sources.collect_lag(installed(at), NOW).conditions
    assert (found.rule, found.loses_at) == ("time-to-loss", NOW + timedelta(minutes=48))


def test_the_alert_of_a_loss_names_reader_record_and_setting_as_they_are_here(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = LagRow("api", "share-holders", 3, 69, 75, 6, 1.0, 2880.0, "loses data in 48 min")
    monkeypatch.setattr(sources, "measure", lambda *_, **__: Lag([row]))
    [found] = sources.collect_lag(installed(at), NOW).conditions
    assert found.text.startswith("api in share-holders[3]: loses data in 48 min; committed: share")
    monkeypatch.setattr(alerts, "firing", lambda _visit: [Firing(found, NOW)])
    monkeypatch.setattr(overview, "firing", lambda _visit: [Firing(found, NOW)])
    warned = at.model_copy(update={"loss_warning": 108_000})
    with page_client(warned, monkeypatch) as page:
        for path in ("", "alerts", f"alerts/one?key={quote(found.name)}"):
            shown = page.get(path)
            assert "Records will be deleted unread: api in share-holders" in shown
            link = "records?topic=share-holders&partition=3&offset=69"
            assert f'{link}">share-holders[3]@69</a>' in shown
        assert "SHARDPOST_LOSS_WARNING</code> (1 d 6 h)" in shown
        assert "--delete --group api</code>" in shown
        assert not re.search(r"HOST|TOPIC|GROUP|how it is computed", shown)


def test_an_unexpected_error_has_a_page_and_is_raised_again_for_the_log(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_visit: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(alerts, "firing", fail)
    with page_client(at, monkeypatch) as page:
        with pytest.raises(RuntimeError):
            page.get("alerts")
        monkeypatch.setattr(page._client._transport, "raise_server_exceptions", False)
        shown = page.get("alerts", 500)
    assert "Something went wrong" in shown
    assert "an unexpected error, RuntimeError: the log of Airflow's API server has" in shown
    assert "secret" not in shown
    assert 'aria-label="Shardpost"' in shown


def test_a_key_that_no_record_has_exactly_is_said(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(at, monkeypatch) as page:
        shown = page.get("records", topic="positions", key="anna")
        assert "No record of positions has exactly this key." in shown


def test_numbers_of_the_watch_have_their_age_and_who_may_has_it_look_now(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, str]] = []

    def start(user: str, dag: str, _conf: object, _why: str) -> str:
        started.append((user, dag))
        return "run1"

    monkeypatch.setattr(access, "start_run", start)
    monkeypatch.setattr(access, "unfinished_run", lambda _dag: "run1" if started else None)
    looked_at = datetime.now(UTC) - timedelta(minutes=14, seconds=5)
    up = [Measure("source_up", 1, {"source": name}) for name in ("lag", "letters")]
    history.add_measures(
        installed(at).tables, [*up, Measure("letters", 3, {"state": "parked"})], looked_at
    )
    with page_client(at, monkeypatch, user="anna") as page:
        for path in ("", "topics"):
            assert ">14 min ago</time>" in page.get(path)
        for path in ("topics", ""):
            assert "run1 of watch_kafka is measuring: its results appear" in page.send(
                path, "topics/look"
            )
    assert started == [("anna", "watch_kafka")]
    with page_client(at, monkeypatch, role="viewer") as page:
        for path in ("", "topics"):
            assert "Look now" not in page.get(path)
        assert page.post("topics/look", {}).status_code == 403


def test_one_request_after_another_reaches_kafka_by_what_the_one_before_has_opened(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, admin = list[Kafka](), Kafka.admin

    def noted(kafka: Kafka) -> AdminClient:
        asked.append(kafka)
        return admin(kafka)

    monkeypatch.setattr(Kafka, "admin", noted)
    patient = at.model_copy(update={"kafka_timeout": 60})  # the page waits less
    with page_client(patient, monkeypatch) as page:
        page.get("records", topic="clients", partition=0)
        first = len(asked)
        page.get("records", topic="clients", partition=0)
    assert 0 < first < len(asked)
    assert all(kafka is asked[0] for kafka in asked)
