"""Imports of clients and exchanges, and increments: compared, applied, killed, repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import INPUTS
from shardpost.imports import run as import_run
from shardpost.kafka import records as kafka_records
from shardpost.kafka.records import Record
from shardpost.settings import Settings
from shardpost.values.topic_names import TopicName
from tests.support.at_step import at_step, killing
from tests.support.compacting import run
from tests.support.imports import Row, csv_of, decided, row, run_import
from tests.support.installed import installed
from tests.support.letter_world import committed
from tests.support.reference import Raw, client, exchange, position, produce, published
from tests.support.topic_schemas import require_valid

Fresh = Callable[[], Settings]
BATCH = "import batch written"


def compacted(settings: Settings, *raw: Raw) -> Settings:
    produce(settings, raw)
    run(settings)
    return settings


def latest(settings: Settings, topic: TopicName, *columns: str) -> dict[str, tuple[Any, ...]]:
    """Return what is open in the newest snapshot: {key: these columns}."""
    table = INPUTS[topic].latest
    at = at_snapshot(snapshots.current(installed(settings).tables), table)
    sql = f"SELECT * FROM {table.name} WHERE is_open"  # noqa: S608
    found = rows(installed(settings).tables, sql, at)
    return {one["key"]: tuple(one[name] for name in columns) for one in found}


def of_imports(settings: Settings, topic: TopicName) -> list[Record]:
    """Return the records of imports."""
    found = [*committed(settings, settings.topic(topic))]
    found = [one for one in found if "import-id" in dict(one.headers)]
    require_valid(topic, found)
    return found


def person(key: str, name: str = "", email: str = "", *, subscribed: str = "true") -> Row:
    return {"Client": key, "Name": name, "Email": email, "Subscribed": subscribed}


def test_clients_are_compared_with_clients_and_those_that_a_list_lacks_are_closed(
    fresh: Fresh, tmp_path: Path
) -> None:
    settings = compacted(fresh(), *(client(f"c{n}", f"n{n}") for n in range(4)))
    listed = [
        person("c0", "n0", "n0@x.example"),
        person("c1", "", "n1@x.example"),
        person("c2", "n2", "n2@x.example", subscribed="FALSE"),
        person("ä", "Äh"),
        person("bad", subscribed="maybe"),
    ]
    path = csv_of(tmp_path / "list.csv", listed)
    refused = run_import(settings, path, into="clients", code=3)["refused"]
    assert refused.startswith("1 of 4 open clients would close (25%), more than 5%")
    plan = run_import(settings, path, into="clients", apply=False, max_closed=0.5)
    assert of_imports(settings, "clients") == []
    done = run_import(settings, path, into="clients", max_closed=0.5, up_to=plan["up_to"])
    counts = {name: done[name] for name in ("into", "new", "changed", "closed", "equal", "open")}
    assert counts == {
        "into": "clients",
        "new": 1,
        "changed": 2,
        "closed": 1,
        "equal": 1,
        "open": 4,
    }
    assert [one["row"]["Client"] for one in done["rejected"]] == ["bad"]
    values = {(one.key or b"").decode(): one.value for one in of_imports(settings, "clients")}
    assert values.keys() == {"c1", "c2", "c3", "ä"}
    assert values["c3"] is None
    assert (values["ä"] or b"").decode() == (
        '{"Client":"ä","Name":"Äh","Email":null,"Subscribed":true}'
    )
    run(settings)
    assert latest(settings, "clients", "name", "email", "subscribed") == {
        "c0": ("n0", "n0@x.example", True),
        "c1": (None, "n1@x.example", True),
        "c2": ("n2", "n2@x.example", False),
        "ä": ("Äh", None, True),
    }
    again = run_import(settings, path, into="clients")
    assert (again["written"], again["applied_before"] is not None) == (0, True)
    assert decided(settings) == [done["import_id"]]


def test_exchanges_are_imported_and_holders_follow_them(fresh: Fresh, tmp_path: Path) -> None:
    world = [exchange("A", "US"), exchange("B", "GB"), exchange("C", "US")]
    held = [position(str(n), f"client{n}", code) for n, code in enumerate("ABC")]
    settings = compacted(fresh(), *world, *held)
    assert published(settings).keys() == {"client0", "client2"}
    listed = [
        {"Exchange": code, "Country": country} for code, country in (("A", "US"), ("B", "US"))
    ]
    path = csv_of(tmp_path / "list.csv", [*listed, {"Exchange": "C", "Country": ""}])
    done = run_import(settings, path, into="exchanges", max_closed=1.0)
    assert (done["changed"], done["equal"], done["unknown_exchanges"]) == (2, 1, {})
    # What is not compacted of another topic stops no import into this one, nor that one.
    positions = csv_of(tmp_path / "positions.csv", [row(str(n), "client0", "A") for n in range(3)])
    assert run_import(settings, positions, apply=False)["changed"] == 2
    run(settings)
    assert latest(settings, "exchanges", "country")["C"] == (None,)
    assert published(settings).keys() == {"client0", "client1"}


def test_records_of_its_own_topic_that_are_not_compacted_stop_an_import(
    fresh: Fresh, tmp_path: Path
) -> None:
    settings = compacted(fresh(), client("c0", "n0"))
    produce(settings, [client("c1", "n1")])
    path = csv_of(tmp_path / "list.csv", [person("c0")])
    with pytest.raises(ShardpostError, match=r"clients\S* has records that are not in the tables"):
        run_import(settings, path, into="clients")


def changed(key: str, owner: str, at: str) -> Row:
    return {**row(key, owner), "Changed": at}


def test_an_increment_takes_what_is_new_closes_nothing_and_continues(
    fresh: Fresh, tmp_path: Path
) -> None:
    settings = compacted(fresh(), *(position(str(n), "client0", "NASDAQ") for n in range(3)))
    path = tmp_path / "list.csv"

    def taken(*listed: Row, **more: Any) -> dict[str, Any]:
        found = run_import(settings, csv_of(path, listed), watermark="Changed", **more)
        run(settings)
        names = ("rows", "new", "changed", "closed", "equal", "open", "written", "watermark")
        return {name: found[name] for name in names}

    old = [changed("0", "client1", "2026-11-20 08:00"), changed("1", "client0", "2026-11-20 09:00")]
    assert taken(*old) == {
        "rows": 2,
        "new": 0,
        "changed": 1,
        "closed": 0,
        "equal": 1,
        "open": 3,
        "written": 1,
        "watermark": "2026-11-20 09:00",
    }
    # Another program has changed what lies before the watermark: that stays.
    compacted(settings, position("0", "client7", "NASDAQ"))
    new = [
        changed("5", "client5", "2026-11-20T10:00:00Z"),
        changed("5", "client6", "2026-11-20 11:00"),
    ]
    assert taken(*old, *new) == {
        "rows": 2,
        "new": 1,
        "changed": 0,
        "closed": 0,
        "equal": 1,
        "open": 3,
        "written": 1,
        "watermark": "2026-11-20 11:00",
    }
    owners = {"0": ("client7",), "1": ("client0",), "2": ("client0",), "5": ("client6",)}
    assert latest(settings, "positions", "client") == owners
    # A rejected row is taken again until it is corrected, whatever comes after it.
    bad = {**changed("6", "client6", "2026-11-21"), "Amount": "1,5"}
    after = changed("7", "client7", "2026-11-22")
    for _ in range(2):
        assert taken(*old, *new, bad, after)["watermark"] == "2026-11-21"
    good = {**bad, "Amount": "1.5"}
    assert taken(*old, *new, good, after)["watermark"] == "2026-11-22"
    assert latest(settings, "positions", "client").keys() == {*owners, "6", "7"}
    # A full list of the same file has nothing to do with it, and closes.
    everything = csv_of(path, [*old, *new, good, after])
    assert run_import(settings, everything, apply=False, max_closed=1.0)["closed"] == 1


def test_an_increment_that_is_killed_begins_where_it_began(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = compacted(fresh())
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 2)
    path = csv_of(tmp_path / "list.csv", [changed(str(n), "client0", str(n)) for n in range(7)])
    with killing(at_step(monkeypatch, import_run), BATCH):
        run_import(settings, path, watermark="Changed")
    assert (len(of_imports(settings, "positions")), decided(settings)) == (2, [])
    done = run_import(settings, path, watermark="Changed")
    keys = [one.key for one in of_imports(settings, "positions")]
    assert len(keys) == len({*keys}) == 7
    assert (done["written"], done["watermark"]) == (5, "6")
    run(settings)
    more = [changed(str(n), "client0", str(n)) for n in range(9)]
    again = run_import(settings, csv_of(path, more), watermark="Changed")
    assert (again["rows"], again["new"], again["equal"]) == (3, 2, 1)
