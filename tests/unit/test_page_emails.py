"""Pages of the weekly e-mails whose ledger is slow or cannot be read; Kafka in memory."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import playwright
import pytest

from shardpost.page import holders
from shardpost.page.rendering import FOLDER
from shardpost.settings import Settings
from shardpost.weekly_email.kept_statuses import KeptStatuses, Totals
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.histories import Batch, country_of, put, write
from tests.support.page_client import PageClient, page_client
from tests.support.written_weeks import begin, freeze, record

WEEK, NEXT = IsoWeek(2026, 46), IsoWeek(2026, 47)


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


def test_why_weeks_cannot_be_counted_is_said_with_the_weeks(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = dict.fromkeys([str(NEXT), str(WEEK)], "it is away") | {"2026-W44": "it is full"}
    monkeypatch.setattr(KeptStatuses, "of_weeks", lambda *_: Totals({}, False, problems))
    shown = page.get("emails")
    assert f"The counts of {NEXT}, {WEEK} cannot be read: it is away.</p>" in shown
    assert "The counts of 2026-W44 cannot be read: it is full.</p>" in shown


def test_while_not_all_weeks_are_counted_the_page_is_loaded_again(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "data-refresh" not in page.get("emails")
    monkeypatch.setattr(KeptStatuses, "of_weeks", lambda *_: Totals({}, True, {}))
    assert 'data-refresh="1"' in page.get("emails")


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
