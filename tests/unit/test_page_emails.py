"""Pages of the weekly e-mails whose ledger is slow or cannot be read; Kafka in memory."""

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import playwright
import pytest

from shardpost.page import holders
from shardpost.page.rendering import FOLDER
from shardpost.settings import Settings
from shardpost.weekly_email import kept_statuses
from shardpost.weekly_email.kept_statuses import KeptStatuses, Totals
from shardpost.weekly_email.ledger_projection import last_offsets
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.histories import Batch, country_of, put, write
from tests.support.job_process import wait_for
from tests.support.page_client import PageClient, page_client
from tests.support.written_weeks import begin, freeze, record

WEEK, NEXT = IsoWeek(2026, 46), IsoWeek(2026, 47)
PAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("emails/week", {}),
    ("emails/clients", {"state": "unknown"}),
    ("emails/start", {}),
)
READING = "are being counted. This page is loaded again"


@pytest.fixture
def mailed(at: Settings) -> Settings:
    """Give a week in which one client was mailed, and of one it is unknown."""
    begin(at, WEEK, WEEK.end)
    freeze(at, WEEK, ["c0", "c1", "c2"], WEEK.end)
    record(at, WEEK, "c0", DeliveryState.SENT)
    record(at, WEEK, "c1", DeliveryState.SENDING)
    return at


@pytest.fixture
def page(mailed: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    monkeypatch.setattr(kept_statuses, "WAIT_SECONDS", 60)
    with page_client(mailed, monkeypatch) as client:
        yield client


def test_a_client_has_its_mails_of_the_newest_weeks_and_is_listed_by_the_start_of_its_id(
    page: PageClient, mailed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "_contacts", lambda *_: {})  # of which there is no table
    positions = [put(str(n), f"c{n}", "NASDAQ") for n in range(3)]
    write(mailed, [Batch(positions, [country_of("NASDAQ", "US")])])
    begin(mailed, NEXT, NEXT.end)
    for client, states in {"c0": ("sent", "not mailed"), "c1": ("unknown", "not mailed")}.items():
        shown = page.get("holders/client", client=client).partition('id="emails"')[2]
        states_shown = re.findall(r'data-label="state"><span class="tag \w*">([^<]+)', shown)
        assert tuple(reversed(states_shown)) == states
        assert f"emails/mail?week={WEEK}&client={client}" in shown
    by_id: dict[str, Any] = {"week": WEEK, "state": "sent"}
    assert len(page.csv("emails/clients", **by_id, client="c")) == 2
    assert page.json("emails/clients", **by_id, client="c1")["count"] == 0
    assert "whose id begins so" in page.get("emails/clients", **by_id, client="c1")


def break_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each count fail after the request has gone on."""
    failed = list[Event]()

    def fail(*_: object) -> None:
        assert failed[-1].wait(60)
        raise OSError("the disk is full")

    read = KeptStatuses._is_reading

    def is_reading(self: KeptStatuses, *given: Any) -> bool:
        failed.append(Event())
        monkeypatch.setattr(kept_statuses, "WAIT_SECONDS", 0)
        found = read(self, *given)
        failed[-1].set()
        wait_for(lambda: not self._reading, "the end of the count")
        return found

    monkeypatch.setattr(kept_statuses, "last_offsets", fail)
    monkeypatch.setattr(KeptStatuses, "_is_reading", is_reading)


def test_why_a_ledger_cannot_be_read_is_said_however_long_that_took(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_slowly(monkeypatch)
    for path, query in PAGES:
        refused = page.get(path, 503, week=WEEK, **query)
        assert f"the counts of {WEEK} cannot be read: unexpected OSError: the disk is" in refused


def test_old_counts_of_a_ledger_that_cannot_be_read_are_shown_but_not_to_decide_by(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be read" not in page.get("emails/week", week=WEEK)
    with monkeypatch.context() as patched:
        break_slowly(patched)
        shown = page.get("emails/week", week=WEEK)
        assert f"The counts of {WEEK} cannot be read: unexpected OSError: the disk" in shown
        assert "These are the counts from" in shown
        assert "By shard" in shown
        for path, query in PAGES[1:]:
            assert "the disk is full" in page.get(path, 503, week=WEEK, **query)
    monkeypatch.setattr(kept_statuses, "WAIT_SECONDS", 60)
    for path, query in PAGES:
        assert "cannot be read" not in page.get(path, week=WEEK, **query)


def test_a_count_that_takes_longer_than_it_is_fresh_is_shown_with_its_time(
    page: PageClient, mailed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = Event(), Event()

    def slow(*given: Any) -> object:
        began.set()
        assert goes_on.wait(60)
        return last_offsets(*given)

    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    count = KeptStatuses._count

    def begun_before(self: KeptStatuses, at: Any, weeks: Any, _: object) -> None:
        count(self, at, weeks, long_ago)

    monkeypatch.setattr(KeptStatuses, "_count", begun_before)
    monkeypatch.setattr(kept_statuses, "WAIT_SECONDS", 0)
    for path, query in PAGES[1:]:
        with monkeypatch.context() as patched:
            patched.setattr(kept_statuses, "WAIT_SECONDS", 60)
            page.get(path, week=WEEK, **query)
        record(mailed, WEEK, "c2", DeliveryState.FAILED, "no contact")
        began.clear()
        goes_on.clear()
        with monkeypatch.context() as patched:
            patched.setattr(kept_statuses, "last_offsets", slow)
            shown = page.get(path, week=WEEK, **query)
            assert began.wait(60)
        goes_on.set()
        assert READING not in shown
        assert re.search(r"Counted\s+<time [^>]+>5 min ago</time>", shown)


def test_of_weeks_that_cannot_be_read_the_oldest_time_is_shown(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    times = {str(NEXT): now, str(WEEK): now - timedelta(hours=2)}
    problems = dict.fromkeys([*times, "2026-W45"], "it is away") | {"2026-W44": "it is full"}
    found = Totals({}, False, problems, times)
    monkeypatch.setattr(KeptStatuses, "of_weeks", lambda *_: found)
    shown = page.get("emails")
    assert f"The counts of {NEXT}, {WEEK}, 2026-W45 cannot be read: it is away. These" in shown
    assert "2 h ago</time>" in shown
    assert "The counts of 2026-W44 cannot be read: it is full.</p>" in shown


def test_a_page_that_is_loaded_again_ticks_no_other_row(page: PageClient) -> None:
    shown = page.get("emails/clients", week=WEEK, state="unknown")
    [box] = [line for line in shown.splitlines() if 'type="checkbox" name="client"' in line]
    assert 'autocomplete="off">' in box.partition("</td>")[0]


FIELD = {"checked": False, "defaultChecked": False, "value": "", "defaultValue": ""}
OPTIONS = [{"defaultSelected": False}] * 3


@pytest.mark.parametrize(
    ("field", "is_loaded"),
    [
        (FIELD, True),
        ({**FIELD, "value": "a wrong price"}, False),
        ({**FIELD, "checked": True}, False),
        ({**FIELD, "focused": True}, False),
        ({"value": "as it was", "defaultValue": "as it was"}, True),
        ({"options": OPTIONS, "selectedIndex": 0}, True),
        ({"options": OPTIONS, "selectedIndex": 1}, False),
        ({"options": [*OPTIONS, {"defaultSelected": True}], "selectedIndex": 3}, True),
        ({"options": [*OPTIONS, {"defaultSelected": True}], "selectedIndex": 0}, False),
    ],
)
def test_a_page_is_not_loaded_again_while_a_form_is_filled_in(
    field: dict[str, object], is_loaded: bool
) -> None:
    source = (FOLDER / "static" / "page.js").read_text()
    reload = source[source.index("function isChanged") : source.index("document.addEventListener(")]
    script = f"""
        const field = {json.dumps(field)}, timers = [], done = [];
        const document = {{querySelectorAll: () => [field]}};
        if (field.focused) document.activeElement = field;
        const setTimeout = (work) => timers.push(work), location = {{reload: () => done.push(1)}};
        {reload}
        reloadAfter(2000);
        for (let n = 0; n < 5 && timers.length; n++) timers.shift()();
        console.log(JSON.stringify([done.length, timers.length]));
    """
    node = Path(playwright.__file__).parent / "driver" / "node"
    said = subprocess.run([node, "-e", script], check=True, capture_output=True, text=True)
    assert json.loads(said.stdout) == ([1, 0] if is_loaded else [0, 1])
