"""The page of holders: what it says is what the commands say."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from shardpost import tables
from shardpost.kafka.records import partition_of
from shardpost.page.rendering import ROWS_OF_A_PAGE
from shardpost.settings import Settings
from tests.support.compacting import run
from tests.support.page_client import PageClient, page_client
from tests.support.reference import Raw, closed, position, produce

HOUR_MS = 3_600_000
BEGIN_MS = 1_790_000_000_000
HOSTILE = "<script>alert(1)</script>\u202e'\"&"
MANY = 230


def at(hours: float) -> datetime:
    return datetime.fromtimestamp((BEGIN_MS + hours * HOUR_MS) / 1000, UTC)


@pytest.fixture(scope="module")
def story(shared: Settings) -> Settings:
    """Give a home with two snapshots."""
    first = [
        position("1", "client1", "NASDAQ", timestamp_ms=BEGIN_MS),
        position("2", "client1", "LON", timestamp_ms=BEGIN_MS),
        position("10", "client1", "NASDAQ", timestamp_ms=BEGIN_MS),
        position("3", "client2", "NASDAQ", timestamp_ms=BEGIN_MS),
        Raw("positions", b"1", b"{ bad", BEGIN_MS),
        Raw("positions", b"BAD1", b"{ bad", BEGIN_MS),
        Raw("clients", b"BAD2", b"{ bad", BEGIN_MS),
        position(HOSTILE, HOSTILE, "NASDAQ", timestamp_ms=BEGIN_MS),
        *(position(f"m{n}", f"many{n:03}", "NASDAQ", timestamp_ms=BEGIN_MS) for n in range(MANY)),
    ]
    produce(shared, first)
    run(shared)
    moved = position("3", "client1", "NASDAQ", timestamp_ms=BEGIN_MS + 2 * HOUR_MS)
    produce(shared, [closed("1", timestamp_ms=BEGIN_MS + HOUR_MS), moved])
    run(shared)
    return shared


@pytest.fixture
def page(story: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    with page_client(story, monkeypatch, role="viewer") as client:
        yield client


def test_the_list_is_that_of_the_command_page_by_page(page: PageClient, story: Settings) -> None:
    asked: list[dict[str, Any]] = [{}, {"snapshot": 1}, {"as_of": at(1.5).isoformat()}]
    shards = tables.snapshot(settings=story).shards
    for own in [*asked, *({**one, "shard": shard} for one in asked for shard in range(shards))]:
        given = {**own, "as_of": at(1.5)} if "as_of" in own else own
        expected = tables.holders(settings=story, **given)
        pages = range(1, -(-len(expected) // ROWS_OF_A_PAGE) + 2)
        parts = [page.json("holders", page=number, **own) for number in pages]
        assert {client: ids for part in parts for client, ids in part.items()} == expected
        assert all(len(part) <= ROWS_OF_A_PAGE for part in parts)
        assert len(page.csv("holders", **own)) == 1 + min(len(expected), ROWS_OF_A_PAGE)
    assert f"Clients: {MANY + 2}" in page.get("holders")
    assert "no record" not in page.get("holders", search="many00")
    assert [*page.json("holders", search="many00")] == [f"many00{n}" for n in range(10)]


def test_a_search_finds_a_client_or_a_position_and_says_why_neither(page: PageClient) -> None:
    assert "holders/client?client=client2" in page.get("holders", search="client2")
    assert "holders/position?position=10" in page.get("holders", search="10")
    unknown = "client stranger is unknown to snapshot 2: no record of it or its positions"
    assert unknown in page.get("holders", search="stranger")
    assert "holders/position?position=BAD1" in page.get("holders", search="BAD1")
    rejected = "client BAD2 is unknown to snapshot 2: all of its records were rejected"
    assert rejected in page.get("holders", search="BAD2")
    own = partition_of("client1", 4)
    found = page.get("holders", search="client1", shard=(own + 1) % 4)
    assert f"client1 is in shard {own}, not in {(own + 1) % 4}" in found
    assert "later records are not in this answer" in page.get("holders", as_of="2200-01-01")
    assert "expected 0 to 3" in page.get("holders", 400, shard=4)
    assert "expected ISO 8601" in page.get("holders", 400, as_of="yesterday")
    assert "there are 1 to 2" in page.get("holders", 404, snapshot=7)


@pytest.mark.parametrize("asked", [{}, {"snapshot": 1}, {"as_of": at(1.5).isoformat()}])
def test_a_client_has_its_positions_and_every_record_that_put_or_took_one(
    page: PageClient, story: Settings, asked: dict[str, Any]
) -> None:
    found = page.json("holders/client", client="client1", **asked)
    given = {**asked, "as_of": at(1.5)} if "as_of" in asked else asked
    assert found["holders"] == tables.holders("client1", settings=story, **given)
    changes = tables.explain("client1", snapshot=asked.get("snapshot"), settings=story)
    assert found["explain"] == [change.as_json() for change in changes]
    shown = page.get("holders/client", client="client1", **asked)
    for change in changes:
        place = f"partition={change.coordinates.partition}&offset={change.coordinates.offset}"
        assert f"records/record?topic={change.coordinates.topic}&{place}" in shown
        assert change.why in shown
    assert "Rejected records of these positions" in shown


def test_a_page_behind_the_last_one_says_which_that_is(page: PageClient) -> None:
    assert "There is no page 9: the last one is page " in page.get("holders", page=9)


def test_who_holds_nothing_is_told_as_the_command_tells_it(page: PageClient) -> None:
    assert "No position counts." in page.get("holders/client", client="client2")
    unknown = "Client stranger is unknown to snapshot 2: no record of it or its positions"
    assert unknown in page.get("holders/client", client="stranger")
    assert "position zzz is unknown to snapshot 2" in page.get("holders/position", position="zzz")
    assert "client: should have at least 1 character" in page.get("holders/client", 400, client="")


def test_a_position_has_its_holder_the_reason_and_all_its_records(page: PageClient) -> None:
    found = page.json("holders/position", position="1")
    assert (found["client"], found["counts"], found["why"]) == (
        None,
        False,
        "the position is closed",
    )
    assert [record["kind"] for record in found["records"]] == ["tombstone", "rejected", "upsert"]
    assert "expected" in found["records"][1]["reason"]
    assert [(one["client"], one["change"]) for one in found["changes"]] == [
        ("client1", "put"),
        ("client1", "took"),
    ]
    earlier = page.json("holders/position", position="1", snapshot=1)
    assert (earlier["client"], earlier["counts"]) == ("client1", True)
    other = page.json("holders/position", position="2")
    assert (other["counts"], other["why"]) == (False, "exchange LON is in GB")
    shown = page.get("holders/position", position="3")
    steps = [line.split('","')[1:7] for line in page.csv("holders/position", position="3")[1:]]
    assert steps == [
        ["put", "3", "client1", "1", "T", "NASDAQ"],
        ["took", "3", "client2", "1", "T", "NASDAQ"],
        ["put", "3", "client2", "1", "T", "NASDAQ"],
    ]
    for then, holder in ((1.5, "client2"), (-1, "nobody, or it did not count")):
        before = page.get("holders/position", position="3", as_of=at(then).isoformat())
        held = before[before.index("Held as of") :][:500]
        assert holder in held
    assert "holders/client?client=client1" in shown


def test_hostile_names_are_text(page: PageClient) -> None:
    for found in (
        page.response("holders", search=HOSTILE).text,
        page.response("holders/client", client=HOSTILE).text,
        page.response("holders/position", position=HOSTILE).text,
    ):
        assert "<script>alert" not in found
        assert "&lt;script&gt;alert" in found
    assert page.json("holders/client", client=HOSTILE)["holders"] == {HOSTILE: [HOSTILE]}
    page.get("holders/client", client="x" * 10_000)


def test_of_a_client_with_very_many_positions_each_has_its_last_change(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardpost.page.holders.MOST_REPLAYED", 2)
    lines = page.csv("holders/client", client="client1")
    assert [line.split(",")[1:3] for line in lines[1:]] == [
        ['"took"', '"1"'],
        ['"not counted"', '"2"'],
        ['"put"', '"3"'],
        ['"put"', '"10"'],
    ]
    assert "This client had 4 positions" in page.get("holders/client", client="client1")


def test_before_the_first_snapshot_it_says_what_to_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch) as page:
        assert "run <code>shardpost compact</code>" in page.get("holders", 503)
