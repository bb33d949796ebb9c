"""The page of holders: what each position is, whose, and how that came; searches; no JVM."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shardpost.delta import snapshots
from shardpost.holders import listed_holders
from shardpost.holders.model.view_tables import CLIENT_EVENTS, CLIENTS
from shardpost.settings import Settings
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.histories import (
    START,
    Batch,
    close,
    country_of,
    overwrite,
    put,
    reject,
    snapshot,
    write,
)
from tests.support.installed import installed
from tests.support.page_client import PageClient, page_client
from tests.support.written_weeks import begin, freeze, record

KAFKA = {"partitions": 2, "kafka_timeout": 1, "snapshot_days": 36_500}
HOSTILE = "<b>O'Neil</b> 100%_\\"
PEOPLE = {
    "c1": ("Ada Lovelace", "ada@engines.example"),
    "c2": ("Grace Hopper", "GRACE@navy.example"),
    "c3": (None, None),
    "c4": ("Nobody's Holder", "nothing@ada.example"),
    "c5": (HOSTILE, "o'neil@x.example"),
}
FIRST = Batch(
    [
        put("1", "c1", "NASDAQ"),
        put("2", "c1", "LON"),
        put("3", "c2", "NASDAQ"),
        put("4", "c3", "NASDAQ", amount="7.50"),
        put("5", "c5", "NASDAQ"),
        *(put(f"many{n}", "crowd", "NASDAQ") for n in range(7)),
    ],
    [country_of("NASDAQ", "US"), country_of("LON", "GB"), country_of("NYSE", "US")],
)
SECOND = Batch(
    [
        put("1", "c1", "NASDAQ", 2, amount="150"),
        reject("1", 3),
        put("1", "c1", "NYSE", 4, amount="150"),
        put("3", "c1", "NASDAQ", 5),
        close("5", 6),
    ]
)


def contact_rows() -> list[dict[str, Any]]:
    place = {"partition": 0, "timestamp": START, "snapshot": 1, "kind": "upsert"}
    return [
        {**place, "key": key, "offset": at, "seq": at, "is_open": True}
        | {"name": name, "email": email, "subscribed": key != "c2"}
        for at, (key, (name, email)) in enumerate(PEOPLE.items())
    ]


@pytest.fixture
def world(at: Settings) -> Settings:
    write(at, [FIRST, SECOND])
    last = snapshots.current(installed(at).tables)
    contacts = {one.name: overwrite(at, one, contact_rows()) for one in (CLIENTS, CLIENT_EVENTS)}
    made = replace(snapshot(last.number + 1, {**last.tables, **contacts}), folded=last.folded)
    snapshots.commit(installed(at).tables, made)
    return at


@pytest.fixture
def page(world: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    with page_client(world, monkeypatch, role="viewer") as client:
        yield client


def clients_found(page: PageClient, **asked: object) -> list[str]:
    return [line.split('"')[1] for line in page.csv("holders", **asked)[1:]]


def test_each_holder_stands_with_name_e_mail_and_what_its_positions_are(page: PageClient) -> None:
    lines = page.csv("holders")
    assert lines[0] == '"client","name","e-mail","shard","positions","which"'
    [ada] = [line for line in lines if line.startswith('"c1"')]
    assert '"Ada Lovelace","ada@engines.example"' in ada
    assert ada.endswith('"2","1: 150 AAPL at NYSE; 3: 100 AAPL at NASDAQ"')
    [crowd] = [line for line in lines if line.startswith('"crowd"')]
    assert crowd.count(": ") == 7
    shown = page.get("holders")
    assert "7.50 AAPL</bdi> at <bdi>NASDAQ" in shown
    assert "2 more</a>" in shown  # of the seven of the crowd
    assert "holders/position?position=4" in shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("c1", ["c1"]),
        ("LOVELACE", ["c1"]),
        ("grace@NAVY", ["c2"]),
        ("ada", ["c1", "c4"]),
        ("row", ["crowd"]),
        ("'s hol", ["c4"]),
        ("100%_\\", ["c5"]),
        ("%", ["c5"]),
        ("nowhere", []),
    ],
)
def test_a_search_is_by_id_name_and_e_mail_in_any_case_of_letters(
    page: PageClient, text: str, found: list[str]
) -> None:
    assert clients_found(page, search=text) == found
    held = {one for one in found if one not in ("c2", "c4", "c5")}
    assert set(page.json("holders", search=text)) == held


def test_who_holds_nothing_is_found_and_a_shard_still_counts(
    page: PageClient, world: Settings
) -> None:
    assert '"c4","Nobody\'s Holder","nothing@ada.example"' in "".join(
        page.csv("holders", search="nobody's")
    )
    found = clients_found(page, search="c")
    shards = range(snapshots.current(installed(world).tables).shards)
    parts = [clients_found(page, search="c", shard=shard) for shard in shards]
    assert sorted(one for part in parts for one in part) == found


def test_a_search_for_a_position_leads_to_it_and_calls_no_client_unknown(page: PageClient) -> None:
    shown = page.get("holders", search="many3")
    assert "holders/position?position=many3" in shown
    assert "is unknown" in page.get("holders", search="nowhere")
    assert "is unknown" not in shown


def test_a_search_lists_no_more_than_it_may(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_holders, "MOST_FOUND", 2)
    assert clients_found(page, search="c") == ["c1", "c2"]
    assert "More than 2 clients match" in page.get("holders", search="c")
    assert "More than" not in page.get("holders", search="ada")


def test_names_and_addresses_are_for_who_may_see_records_of_clients(
    world: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(world, monkeypatch, sees=["compact_positions"]) as page:
        assert clients_found(page, search="lovelace") == []
        assert clients_found(page, search="c1") == ["c1"]
        shown = [
            page.get("holders"),
            "".join(page.csv("holders")),
            page.get("holders/client", client="c1"),
            page.get("holders/position", position="1"),
        ]
    assert not [text for text in shown if "Lovelace" in text or "ada@" in text]
    assert "topic=clients" not in shown[2]


def test_where_an_erasure_forbids_contacts_ids_are_searched_alone(
    world: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = snapshots.current(installed(world).tables)
    made = snapshot(last.number + 1, last.tables)
    erased = replace(made, erased_in=made.number)
    snapshots.commit(installed(world).tables, erased)
    with page_client(world, monkeypatch) as page:
        asked = {"snapshot": last.number}
        assert clients_found(page, search="c1", **asked) == ["c1"]
        assert clients_found(page, search="lovelace", **asked) == []
        assert "Lovelace" not in page.get("holders/client", client="c1", **asked)


def test_the_history_of_a_client_says_what_was_added_changed_and_removed(page: PageClient) -> None:
    steps = [line.split('","') for line in page.csv("holders/client", client="c1")[1:]]
    assert [(step[1], *step[4:8]) for step in steps] == [
        ("put", "100", "AAPL", "NASDAQ", ""),
        ("amended", "150", "AAPL", "NYSE", "150 AAPL at NASDAQ"),
        ("amended", "150", "AAPL", "NASDAQ", "100 AAPL at NASDAQ"),
        ("not counted", "100", "AAPL", "LON", ""),
        ("put", "100", "AAPL", "NASDAQ", ""),
    ]
    assert {one["change"] for one in page.json("holders/client", client="c1")["explain"]} == {
        "put",
        "not counted",
    }
    shown = page.get("holders/client", client="c1")
    assert "was <bdi>100 AAPL at NASDAQ" in shown
    assert "ada@engines.example" in shown
    assert "emails/mail?week=" in shown
    removed = page.get("holders/client", client="c5")
    assert 'title="took"' in removed
    assert "No position counts." in removed
    assert "Does not count as a holder of US stock" in removed
    assert "Counts as a holder of US stock: 2 open positions by country US" in shown
    assert "<b>O'Neil" not in page.response("holders/client", client="c5").text


def test_of_an_unknown_client_nothing_else_is_shown(page: PageClient) -> None:
    shown = page.get("holders/client", client="stranger")
    assert re.search(r"Client stranger is unknown to snapshot \d: no record of it", shown)
    assert "emails/mail" not in shown
    assert "History" not in shown


def test_of_a_client_whose_history_was_pruned_its_mails_are_shown(
    world: Settings, page: PageClient
) -> None:
    week = IsoWeek.of(START)
    begin(world, week, week.end)
    freeze(world, week, ["pruned"], week.end)
    record(world, week, "pruned", DeliveryState.SENT)
    shown = page.get("holders/client", client="pruned")
    assert "Client pruned is unknown to snapshot" in shown
    assert f"emails/mail?week={week}&client=pruned" in shown
    assert "sent" in shown.split('id="emails"')[1]
    assert 'id="emails"' not in page.get("holders/client", client="stranger")


def test_a_position_leads_to_its_client_its_letters_and_its_records(page: PageClient) -> None:
    shown = page.get("holders/position", position="1")
    assert "holders/client?client=c1" in shown
    assert "Ada Lovelace" in shown
    rejected = [line for line in page.csv("holders/position", position="1") if "rejected" in line]
    assert len(rejected) == 1
    assert "letters/letter?id=positions-" in shown
    assert "records?topic=positions&key=1" in shown
    moved = page.csv("holders/position", position="3")[1:]
    assert [line.split('","')[1:4] for line in moved] == [
        ["put", "3", "c1"],
        ["took", "3", "c2"],
        ["put", "3", "c2"],
    ]
