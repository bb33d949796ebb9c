"""The pages of the weekly e-mails: equal to what the commands say; each action to its effect.

One home for all, in which each test has a week of its own.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import pytest
from jinja2.utils import htmlsafe_json_dumps

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_state import WeekState
from tests.conftest import settings_of_its_own
from tests.support.command_line import CommandLineHere
from tests.support.handed_over import Run
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.mail_server import mail_server
from tests.support.page_client import PageClient, page_client
from tests.support.written_weeks import begin, freeze, hold, record

LAST = IsoWeek.last_ended(datetime.now(UTC))
EVIL = "<script>alert(1)</script>\n\u202e\x1b[2J"
STATES = ("sent", "failed", "unknown", "suppressed", "open")
REFUSED = "550 5.1.1 no such user"
BEGUN: list[IsoWeek] = []


@pytest.fixture(scope="module")
def ready(kafka: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = settings_of_its_own(kafka, tmp_path_factory.mktemp("emails"))
    apply_topics(installed(settings))
    clients = ["c0", "c1", "c2", "c3", "c4", "c5", EVIL]
    hold(settings, clients, {client: f"{client[:2]}@x.example" for client in clients}, LAST.end)
    return settings


@pytest.fixture
def week(ready: Settings) -> IsoWeek:
    """Give a week of seven clients: one sent, two failed, two unknown, two open."""
    week = BEGUN[-1].previous if BEGUN else LAST
    BEGUN.append(week)
    begin(ready, week, week.end)
    freeze(ready, week, ["c0", "c1", "c2", "c3", "c4", "c5", EVIL], week.end)
    entries = [
        LedgerEntry("c1", DeliveryState.FAILED, "<1@x>", f"{REFUSED} <c1@x.example>"),
        LedgerEntry("c2", DeliveryState.FAILED, "<1@x>", f"{REFUSED} <c2@x.example>"),
        LedgerEntry("c3", DeliveryState.UNKNOWN, "<1@x>", "no reply"),
        LedgerEntry(EVIL, DeliveryState.UNKNOWN, "<1@x>", "<b>no reply</b>"),
    ]
    shards = defaultdict(list)
    for entry in entries:
        shards[partition_of(entry.client, ready.partitions)].append(entry)
    for shard, own in shards.items():
        with closing(Ledger(installed(ready), week, shard)) as ledger:
            ledger.open()
            ledger.write(own)
    Run(ready, week, "c0", week.end).send()
    return week


@pytest.fixture
def page(ready: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    with page_client(ready, monkeypatch) as client:
        yield client


def decided(settings: Settings, week: IsoWeek) -> list[Decision]:
    found = decisions_topic.list_since(
        installed(settings).kafka, datetime.now(UTC) - timedelta(hours=1)
    )
    return [one for one, _ in found if one.about.startswith(str(week).encode())]


def of_week(page: PageClient, week: IsoWeek) -> Any:
    """Return the week's row of the list of weeks, once the page has counted it."""
    rows = list[Any]()

    def is_counted() -> bool:
        rows[:] = [row for row in page.json("emails") if row["week"] == str(week)]
        return rows[0]["sent"] is not None

    wait_for(is_counted, "counting a week", seconds=60)
    return rows[0]


def test_weeks_and_a_week_say_what_the_command_says_also_after_new_records(
    page: PageClient, week: IsoWeek, ready: Settings, shardpost: CommandLineHere
) -> None:
    row = of_week(page, week)
    counts = dict(zip(STATES, (1, 2, 2, 0, 2), strict=True))
    assert {state: row[state] for state in STATES} == counts
    assert (row["week"], row["recipients"], row["country"]) == (str(week), 7, "US")
    assert page.json("emails/week", week=week) == shardpost.json(
        "emails", "--week", str(week), code=3
    )
    shown = page.get("emails/week", week=week)
    assert f"{week}: 2 of 7 clients failed" not in shown  # no limit is exceeded
    assert f"{REFUSED} …" in shown
    assert "mails a second" in shown
    assert 'data-refresh="5"' in shown

    record(ready, week, "c4", DeliveryState.SUPPRESSED, "not subscribed")
    record(ready, week, "c3", None, "resolved")
    document = page.json("emails/week", week=week)
    assert document == shardpost.json("emails", "--week", str(week), code=3)
    assert [sum(shard[state] for shard in document["shards"]) for state in STATES] == [
        1,
        2,
        1,
        1,
        2,
    ]
    row = of_week(page, week)
    assert [row[state] for state in STATES] == [1, 2, 1, 1, 2]
    assert page.csv("emails")[0].startswith('"week","state","sent","failed","unknown"')


def test_limits_that_are_exceeded_say_what_to_do(
    page: PageClient, week: IsoWeek, ready: Settings
) -> None:
    for number in range(6):
        record(ready, week, f"d{number}", DeliveryState.FAILED, f"{REFUSED} <d{number}@x.example>")
    shown = page.get("emails/week", week=week)
    assert f"{week}: 8 of 13 clients failed" in shown
    assert "again=FAILED" in shown


def test_each_state_lists_its_clients_by_page_and_reason(
    page: PageClient, week: IsoWeek, shardpost: CommandLineHere
) -> None:
    for state in STATES:
        of_state = {"week": week, "state": state}
        code = 3 if state == "unknown" else 0
        said = shardpost.json("emails", "--week", str(week), "--state", state, code=code)
        assert page.json("emails/clients", **of_state) == said
        names = {one["client"] for group in said["groups"] for one in group["clients"]}
        text = "\n".join(page.csv("emails/clients", **of_state))
        assert all(name in text for name in names)
    failed = page.get("emails/clients", week=week, state="failed", reason=f"{REFUSED} …")
    assert "c1" in failed
    assert "c2" in failed
    assert "Clients in state failed: 2" in failed
    assert "No client is in state failed for that reason" in page.get(
        "emails/clients", week=week, state="failed", reason="another"
    )
    assert "expected one of" in page.get("emails/clients", 400, week=week, state="lost")
    assert "expected an ISO week" in page.get("emails/clients", 400, week="2026-47")


def test_hostile_clients_and_reasons_are_text(page: PageClient, week: IsoWeek) -> None:
    for path, query in (
        ("emails/clients", {"state": "unknown"}),
        ("emails/mail", {"client": EVIL}),
    ):
        raw = page.response(path, week=week, **query).text
        assert "<script>alert" not in raw
        assert "<b>no reply" not in raw
        assert escape("<script>alert(1)") in raw
    framed = page.response("emails/mail/html", week=week, client=EVIL)
    assert framed.headers["Content-Type"].startswith("text/plain")
    assert framed.headers["X-Content-Type-Options"] == "nosniff"


def test_many_unknown_deliveries_are_resolved_at_once_and_recorded(
    page: PageClient, week: IsoWeek, ready: Settings
) -> None:
    listed = f"emails/clients?week={week}&state=unknown"
    chosen: dict[str, Any] = {"week": str(week), "outcome": "sent", "why": "by the server's log"}
    refused = page.send(listed, "emails/resolve", 400, **chosen)
    assert "expected at least one selected client" in refused
    both = [str(htmlsafe_json_dumps(client)) for client in ("c3", EVIL)]
    listed_now = page.get("emails/clients", week=week, state="unknown")
    assert listed_now.count('type="checkbox" name="client"') == 2
    lock = WeekState(installed(ready), week).locked([partition_of("c3", ready.partitions)])
    with lock:
        said = page.send(listed, "emails/resolve", 503, **chosen, client=both)
        assert "is already running" in said
    assert "2 clients resolved as sent" in page.send(
        listed, "emails/resolve", **chosen, client=both
    )
    reason = "resolved as sent by admin: by the server's log"
    for client in ("c3", EVIL):
        shard = partition_of(client, ready.partitions)
        ledger = ShardLedger(installed(ready).kafka, week, shard)
        list(ledger.entries(wait=True))  # brokers write markers after they have answered
        last = ledger.rows_of(client)[-1]
        assert (last["state"], last["reason"]) == ("sent", reason)
    made = decided(ready, week)
    assert {(one.kind, one.who, one.why) for one in made} == {
        (Kind.RESOLVED, "admin", "by the server's log")
    }
    assert {one.about for one in made} == {f"{week}/{c}".encode() for c in ("c3", EVIL)}
    shown = page.get("emails/clients", week=week, state="unknown")
    assert "No client is in state unknown" in shown


def test_a_week_is_paused_and_resumed_and_runs_refuse_it_meanwhile(
    page: PageClient, week: IsoWeek, ready: Settings, shardpost: CommandLineHere
) -> None:
    on = f"emails/week?week={week}"
    of_week: dict[str, Any] = {"week": str(week)}
    assert f"{week} is paused" in page.send(on, "emails/pause", **of_week, why="a wrong price")
    document = page.json("emails/week", week=week)
    assert (document["paused"]["who"], document["paused"]["why"]) == ("admin", "a wrong price")
    assert document == shardpost.json("emails", "--week", str(week), code=3)
    said = f"paused on {datetime.now(UTC):%Y-%m-%d}"
    assert said in shardpost.refused("email", "--week", str(week), code=3)
    assert "by admin (a wrong price)" in page.get("emails/start", week=week)
    again = ("emails", "pause", "--week", str(week), "--why", "also")
    assert "nothing to pause" in shardpost.refused(*again, code=1)

    assert "Resume" in page.get("emails/week", week=week)
    resumed = page.send(on, "emails/resume", **of_week, why="the price is right")
    assert f"{week} is resumed" in resumed
    assert "paused" not in page.json("emails/week", week=week)
    assert page.post("emails/resume", {**of_week, "why": "again"}).status_code == 403  # no form
    assert "not paused" in shardpost.refused(
        "emails", "resume", "--week", str(week), "--why", "again", code=1
    )
    shardpost("emails", "pause", "--week", str(week), "--why", "once more", "--by", "bob")
    made = [(one.kind, one.who, one.why) for one in decided(ready, week)]
    assert made == [
        (Kind.PAUSED, "admin", "a wrong price"),
        (Kind.RESUMED, "admin", "the price is right"),
        (Kind.PAUSED, "bob", "once more"),
    ]


def test_a_clients_mail_is_shown_as_it_was_sent_in_a_frame_of_its_own(
    page: PageClient, week: IsoWeek, shardpost: CommandLineHere
) -> None:
    shown = page.get("emails/mail", week=week, client="c0")
    assert f"c0 got the e-mail of {week}: <" in shown
    assert "The mail as it was sent" in shown
    assert "<c0@x.example>" in shown
    assert "<iframe sandbox title" in shown
    assert "/shardpost/records/record?topic=" in shown
    rows = shardpost.json("emails", "--week", str(week), "--client", "c0")
    assert page.json("emails/mail", week=week, client="c0") == rows
    framed = page.response("emails/mail/html", week=week, client="c0")
    policy = framed.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert policy.endswith("sandbox")
    assert "<table" in framed.text
    unknown = page.get("emails/mail", week=week, client="c3")
    assert "but its content is unknown: its ledger record does not say" in unknown
    would = page.get("emails/mail", week=week, client="c4")
    assert "it is open" in would
    assert "The mail as it would be sent now" in would
    nobody = page.get("emails/mail", week=week, client="nobody")
    assert "was not in that week's audience" in nobody
    assert "cannot be shown" in nobody


def test_a_mail_is_sent_as_a_test_to_another_address_and_that_is_recorded(
    ready: Settings, week: IsoWeek, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"week": str(week), "client": json.dumps("c4"), "why": "to look"}
    on = f"emails/mail?week={week}&client=c4"
    with mail_server() as server:
        own = ready.model_copy(update={"smtp_port": server.port})
        with page_client(own, monkeypatch) as page:
            said = page.send(on, "emails/mail/test", **fields, to="me@x.example")
            assert "sent to me@x.example as a test" in said
            assert "it is open" in said
            page.send(on, "emails/mail/test", 400, **fields, to="no address")
    assert server.taken == {"me@x.example": 1}
    [made] = decided(ready, week)
    assert (made.about, made.kind) == (f"{week}/c4".encode(), Kind.TESTED)
    assert (made.who, made.why) == ("admin", "sent as a test to me@x.example: to look")
    assert (
        ShardLedger(installed(ready).kafka, week, partition_of("c4", ready.partitions)).rows_of(
            "c4"
        )
        == []
    )


def test_who_may_not_run_the_dag_sees_and_sends_no_form(
    ready: Settings, week: IsoWeek, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(ready, monkeypatch, "eve", "viewer") as viewer:
        for path in (
            f"emails/clients?week={week}&state=unknown",
            f"emails/start?week={week}",
            f"emails/week?week={week}",
            f"emails/mail?week={week}&client=c0",
        ):
            assert 'method="post"' not in viewer.get(path)
        for action in ("resolve", "start", "pause", "resume", "mail/test"):
            assert viewer.post(f"emails/{action}", {"week": str(week)}).status_code == 403
    assert decided(ready, week) == []


def test_without_weeks_or_kafka_it_says_so(
    ready: Settings, week: IsoWeek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(ready.model_copy(update={"home": tmp_path}), monkeypatch) as client:
        assert "No week was mailed yet" in client.get("emails")
        assert "nobody was mailed" in client.get("emails/week", week="2020-W01")
        assert "no run of that week" in client.get("emails/mail", week="2020-W01", client="c0")
        assert "It would refuse" in client.get("emails/start", week="2020-W01")
    gone = ready.model_copy(update={"bootstrap_servers": "127.0.0.1:1", "kafka_timeout": 1})
    with page_client(gone, monkeypatch) as client:
        shown = client.get("emails")
        assert str(week) in shown
        assert re.search(rf"The counts of [^.]*{week}[^.]* cannot be read: ", shown)
        assert "127.0.0.1:1" in client.get("emails/week", 503, week=week)
