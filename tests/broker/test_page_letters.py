"""The pages of dead letters: what they show, and each action to its effect in Kafka."""

import base64
import html
import re
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode

import pytest

from shardpost.kafka.records import Outgoing
from shardpost.page import redrives
from shardpost.settings import Settings
from tests.support.command_line import CommandLineHere
from tests.support.histories import Batch, country_of, write
from tests.support.job_process import wait_for
from tests.support.letter_world import (
    START,
    append,
    decisions,
    failed,
    live,
    original,
    put,
    ready_for_letters,
    retries,
    sweep,
    total,
)
from tests.support.page_client import PageClient, page_client

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture
def ready(settings: Settings) -> Settings:
    return ready_for_letters(settings, partitions=2, retry_attempts=0)


@pytest.fixture
def page(ready: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    monkeypatch.setattr(redrives, "ANSWER_SECONDS", 120.0)
    with page_client(ready, monkeypatch, user="anna") as client:
        yield client


def park(
    settings: Settings, count: int, value: bytes = b"v", error: str = "ValueError: bad"
) -> None:
    put(settings, [failed(settings, original(n, b"k%d" % n, value), error) for n in range(count)])
    assert total(sweep(settings, START)) == {"parked": count}


def test_groups_list_and_one_letter_are_what_the_commands_say(
    ready: Settings, page: PageClient, shardpost: CommandLineHere
) -> None:
    park(ready, 3, b'{"a": [1, 2]}')
    append(ready)
    put(ready, [failed(ready, original(7, topic="clients"), f"OSError: {HOSTILE}")])
    found = page.json("letters")
    assert [(g["state"], g["origin"], g["letters"]) for g in found["groups"]] == [
        ("parked", "positions", 3),
        ("waiting", "clients", 1),
    ]
    assert found["letters"] == 4
    listed = shardpost.json("letters", "list")
    assert sorted(page.json("letters/list"), key=lambda one: one["letter_id"]) == sorted(
        listed, key=lambda one: one["letter_id"]
    )
    text = page.get("letters")
    assert "redrive or discard" in text
    shown = page.json("letters/letter", id="positions-0-1")
    assert shown == shardpost.json("letters", "show", "positions-0-1")
    assert "the same" not in page.get("letters/letter", id="positions-0-1")


def test_hostile_letters_are_shown_harmless_and_values_of_all_kinds_can_be_saved(
    ready: Settings, page: PageClient
) -> None:
    values = [b"\xff\x00", HOSTILE.encode(), b"x" * 250_000, b'{"a":' * 2_000]
    put(
        ready,
        [failed(ready, original(n, HOSTILE.encode(), v), HOSTILE) for n, v in enumerate(values)],
    )
    assert total(sweep(ready, START)) == {"parked": 4}
    for path, query in (
        ("letters", {}),
        ("letters/list", {}),
        ("letters/list", {"text": "<SCRIPT>alert"}),
        ("letters/plan", {"ids": "<script>alert"}),
        *(("letters/letter", {"id": f"positions-0-{n}"}) for n in range(4)),
    ):
        found = page.raw(path, **query)
        assert "<script>alert" not in found.text, path
        shown = re.sub("<textarea.*?</textarea>", "", found.text, flags=re.DOTALL)
        assert not set("\u202e\x1b") & set(shown), path
    assert page.raw("letters/value", id="positions-0-0").content == b"\xff\x00"
    assert "00000000  ff 00" in page.get("letters/letter", id="positions-0-0")
    assert "Only the beginning is shown" in page.get("letters/letter", id="positions-0-2")
    assert "no letter missing" in page.get("letters/letter", 404, id="missing")
    assert "state: expected one of waiting" in page.get("letters", 400, state="x")
    assert "There is no page 99: the last one is page 1." in page.get("letters/list", page=99)
    filtered = page.get("letters", origin="positions", state="parked")
    assert "letters/plan?origin=positions" in filtered
    # No selection of a decision is these.
    assert "letters/plan" not in page.get("letters", 200, origin="positions", state="waiting")
    assert "letters/plan" not in page.get("letters", 200, text="positions-0")
    assert page.get("letters/list", text="positions-0").count('name="letter"') == 4


def test_about_letters_without_an_origin_nothing_is_decided_that_others_are_part_of(
    ready: Settings, page: PageClient
) -> None:
    store = ready.topic("dead-letters")
    put(ready, [Outgoing(store, b"nobody's", b"v", [])])
    assert total(sweep(ready, START)) == {"parked": 1}
    append(ready)
    [group] = page.json("letters")["groups"]
    assert (group["state"], group["origin"]) == ("parked", None)
    assert ">redrive or discard<" not in page.get("letters")
    [letter] = page.json("letters/list")
    assert f'name="letter" value="{letter["letter_id"]}"' in page.get("letters/list")


def test_a_plan_changes_nothing_and_is_carried_out_with_the_users_name(
    ready: Settings,
    page: PageClient,
    shardpost: CommandLineHere,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    park(ready, 3)
    fields = {"origin": "positions", "canary": "2", "rate": "50"}
    plan = f"letters/plan?{urlencode(fields)}"
    found = page.json("letters/plan", **fields)
    assert found == shardpost.json("letters", "redrive", "--canary", "2")
    assert (found["letters"], retries(ready)) == (2, [])
    said = page.send(plan, "letters/apply", why="the schema is mended")
    assert "<strong>2</strong> of 2 letters redriven" in said
    assert len(retries(ready)) == 2
    assert {(one["Kind"], one["Who"], one["Why"]) for one in decisions(ready)} == {
        ("redriven", "anna", "the schema is mended")
    }
    [left] = live(ready, ready.topic("parking-lot"))
    refused = page.send(plan, "letters/apply", 400, why=" ")
    assert "expected a reason" in refused
    assert page.get("letters/list", state="parked").count('name="letter"') == 1
    selected = page.get("letters/selected", letter=[(left or b"").decode(), "no"], do="discard")
    assert "<strong>1</strong> letter would be discarded, 1 refused" in selected
    assert "at least one selected letter" in page.get("letters/selected", 400)
    ids = f"{(left or b'').decode()}\r\nnobody"
    one = page.json("letters/plan", do="discard", ids=ids)
    assert (one["letters"], one["refused"]) == (1, 1)
    monkeypatch.setattr(redrives, "READ_AT_ONCE", 0)  # as of a long parking lot
    assert page.json("letters/plan", do="discard", ids=ids) == one
    assert page.json("letters/plan", do="discard")["letters"] == 1
    assert "Read it now" in page.get("letters/plan")
    plan = f"letters/plan?{urlencode({'do': 'discard', 'ids': ids})}"
    said = page.send(plan, "letters/apply", why="lost")
    assert "<strong>1</strong> of 1 letter discarded, 1 refused" in said
    assert "no letter has this id" in said
    again = page.json("letters/run")
    assert (again["state"], again["done"], again["refused"]) == ("done", 1, 1)
    assert live(ready, ready.topic("parking-lot")) == {}


def test_a_decision_is_about_the_letter_that_it_was_asked_for(
    ready: Settings, page: PageClient
) -> None:
    blank = "\u00a0"
    park(ready, 2)
    odd = failed(ready, original(7, b"k7"))
    headers = [(name, raw) for name, raw in odd.headers if name != "letter-id"]
    for key in (blank, f" {blank}x "):
        own = [("letter-id", key.encode()), *headers]
        put(ready, [odd._replace(key=key.encode(), headers=own)])
    assert total(sweep(ready, START)) == {"parked": 2}
    text = page.raw("letters/letter", id=blank).text
    [url] = re.findall(r'href="/shardpost/(letters/plan\?do=discard[^"]*)"', text)
    page.send(html.unescape(url), "letters/apply", why="lost")
    left = {b"positions-0-0", b"positions-0-1", f" {blank}x ".encode()}
    assert live(ready, ready.topic("parking-lot")).keys() == left
    page.send(f"letters/plan?{urlencode({'ids': f' {blank}x '})}", "letters/apply", why="mended")
    assert [(retry.key, retry.offset) for retry in retries(ready)] == [(b"k7", 0)]


@pytest.mark.parametrize("name", ["ids", "origin", "error", "since", "until", "canary", "rate"])
def test_a_filter_that_is_given_and_empty_is_not_all(
    ready: Settings, page: PageClient, name: str
) -> None:
    park(ready, 1)
    page.get(f"letters/plan?{name}=", 400)
    plan = urlencode({"do": "discard", name: "", "up_to": "x:0=9:1=9"})
    page.send("letters/plan", "letters/apply", 400, plan=plan, why="x")
    assert list(live(ready, ready.topic("parking-lot"))) == [b"positions-0-0"]
    # A form sends each field that was left blank.
    shown = page.get(f"letters/choose?do=discard&{name}=")
    assert "<strong>1</strong> letter would be discarded" in shown


def test_what_is_parked_after_a_plan_was_shown_stays_and_is_told(
    ready: Settings, page: PageClient
) -> None:
    park(ready, 1)
    page.send("letters/plan?do=discard", "letters/apply", 400, why=" ")
    plan = page.json("letters/plan", do="discard")
    put(ready, [failed(ready, original(n, b"k%d" % n)) for n in (5, 6)])
    assert total(sweep(ready, START)) == {"parked": 2}
    shown = urlencode({"do": "discard", "up_to": plan["up_to"]})
    said = page.send("letters/plan", "letters/apply", plan=shown, why="lost")
    assert "<strong>1</strong> of 1 letter discarded, 2 not in the plan stay parked" in said
    assert len(live(ready, ready.topic("parking-lot"))) == 2


def test_an_edited_value_is_shown_first_and_then_sent(ready: Settings, page: PageClient) -> None:
    park(ready, 2, b'{\n"Amount": "1,5"}')
    letter = "letters/letter?id=positions-0-1"
    fields = {"id": "positions-0-1", "written": "text", "value": '{\r\n"Amount": 1.5}'}
    plan = page.send(letter, "letters/edit", 200, **fields)
    assert '"Amount": 1.5' in plan
    assert "<strong>1</strong> letter would be redriven with the given value" in plan
    assert retries(ready) == []
    value = base64.b64encode(b'{\n"Amount": 1.5}').decode()
    assert f'value="{value}"' in plan
    two = urlencode({"ids": "positions-0-0\npositions-0-1", "up_to": "x:0=9"})
    assert "expected exactly one letter" in page.send(None, "letters/apply", 400, plan=two, why="x")
    assert retries(ready) == []
    page.send(letter, "letters/edit", 200, **fields)
    page.send(None, "letters/apply", why="a comma")
    [retry] = retries(ready)
    assert retry.value == b'{\n"Amount": 1.5}'
    [decided] = decisions(ready)
    assert (decided["Kind"], decided["Who"]) == ("edited", "anna")
    text = page.get(letter)
    assert "a comma" in text
    assert "records/record?topic=" in text


def test_what_a_compaction_would_reject_again_is_told_before(
    ready: Settings, page: PageClient
) -> None:
    topic = ready.topic("positions")
    put(ready, [failed(ready, original(1, b"k", b"{}", topic=topic), "ValueError: bad")])
    assert total(sweep(ready, START)) == {"parked": 1}
    fields = {"id": f"{topic}-0-1", "written": "text"}
    good = '{"Client": "c", "Ticker": "T", "Amount": 1, "Exchange": "LON"}'
    for value, said in {
        good: None,
        good.replace("1", '"1"'): 'expected a number for Amount, found "1"',
        "{": "expected one JSON object, found {",
    }.items():
        on = f"letters/letter?id={fields['id']}"
        plan = page.send(on, "letters/edit", 200, **fields, value=value)
        assert ("would reject it again" in plan) == (said is not None)
        assert (said or "") in plan
        assert "unchanged, they will be rejected" not in plan
        assert ("The next compaction will accept it" in plan) == (said is None)
    write(ready, [Batch([], [country_of("LON", "GB")])])
    plan = page.send(on, "letters/edit", 200, **fields, value=good)
    assert "The next compaction will accept it" in plan
    plan = page.send(on, "letters/edit", 200, **fields, value=good.replace("LON", "lon "))
    assert "The next compaction will accept it" not in plan
    assert "exchange 'lon ' has no record with a Country: did you mean LON?" in plan


def test_a_plan_says_that_an_unchanged_record_of_an_input_is_rejected_again(
    ready: Settings, page: PageClient
) -> None:
    topic = ready.topic("positions")
    letters = [original(1, b"k", b"{}", topic=topic), original(2, b"k", b"{}")]
    put(ready, [failed(ready, letter, "ValueError: bad") for letter in letters])
    assert total(sweep(ready, START)) == {"parked": 2}
    said = f"A compaction rejected the letters from {topic}: unchanged, they will be rejected"
    assert said in page.get("letters/plan")
    assert said not in page.get("letters/plan", do="discard")
    assert said not in page.get("letters/plan", origin="positions")


def test_a_long_one_goes_on_by_itself_and_is_stopped(
    ready: Settings, page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    park(ready, 4)
    plan = "letters/plan"
    monkeypatch.setattr(redrives, "ANSWER_SECONDS", 0.0)
    said = page.send(f"{plan}?rate=0.05", "letters/apply", why="slowly")
    assert 'data-refresh="2"' in said
    refused = page.send(plan, "letters/apply", 503, why="twice")
    assert "is already running" in refused
    wait_for(lambda: page.json("letters/run")["state"] == "running", "the run to write")
    run = page.json("letters/run")
    assert run["planned"] == 4
    page.send("letters/run", "letters/stop", run=run["id"])
    wait_for(lambda: page.json("letters/run")["state"] == "stopped", "the run to stop")
    done = page.json("letters/run")["done"]
    assert done < 4
    assert len(retries(ready)) == done
    [left] = re.findall(r'href="/shardpost/([^"]*)">Plan the rest', page.get("letters/run"))
    put(ready, [failed(ready, original(n, b"k%d" % n)) for n in (20, 21)])
    assert total(sweep(ready, START)) == {"parked": 2}
    query = dict(parse_qsl(left.partition("?")[2]))
    for most in (redrives.READ_AT_ONCE, 0):  # read whole, or of a long one by the list
        monkeypatch.setattr(redrives, "READ_AT_ONCE", most)
        assert page.json("letters/plan", **query)["letters"] == 4 - done
    monkeypatch.setattr(redrives, "ANSWER_SECONDS", 120.0)
    plan = f"letters/plan?{urlencode({**query, 'rate': '50'})}"
    said = page.send(plan, "letters/apply", why="the rest")
    assert f"<strong>{4 - done}</strong> of {4 - done} letters redriven" in said
    assert len(retries(ready)) == 4


def test_a_viewer_sees_no_form_and_may_not_act(
    ready: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    park(ready, 1)
    with page_client(ready, monkeypatch, role="viewer") as page:
        for path in ("letters/plan", "letters/letter?id=positions-0-0"):
            text = page.get(path)
            assert 'method="post"' not in text
            assert "for users who may run the DAG sweep_dead_letters" in text
        for action in ("letters/apply", "letters/edit", "letters/stop"):
            fields = dict.fromkeys(("why", "id", "value", "run"), "x")
            assert page.post(action, fields).status_code == HTTPStatus.FORBIDDEN
    assert retries(ready) == []


def test_without_letters_or_topics_it_says_what_to_do(
    ready: Settings, settings: Settings, monkeypatch: pytest.MonkeyPatch, page: PageClient
) -> None:
    assert "No dead letters" in page.get("letters")
    assert "No redrive or discard was requested" in page.get("letters/run")
    assert "No parked letter is selected" in page.get("letters/plan")
    nowhere = ready.model_copy(update={"topics": ready.topics | {"dead-letters": "nowhere"}})
    with page_client(nowhere, monkeypatch) as other:
        assert "nowhere" in other.get("letters", 503)
