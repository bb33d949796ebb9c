"""Two views compared key by key, as random tables, against dicts; real Delta tables, no Spark."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import (
    CLIENTS,
    EXCHANGES,
    POSITIONS,
    REJECTED_RECORDS,
    SHARE_HOLDERS,
)
from shardpost.rebuilds.comparison import compare
from shardpost.rebuilds.model.difference import Differences
from shardpost.settings import Settings
from tests.support.histories import START, overwrite, rejected_row, snapshot
from tests.support.installed import installed

# Client, ticker, amount, exchange, and whether it is open.
Form = tuple[str, str, str | None, str, bool]

FOLDERS = {table.name: f"{table.name}.2" for table in (POSITIONS, SHARE_HOLDERS, EXCHANGES)}


def view(forms: Mapping[str, Form]) -> dict[Table, Any]:
    """Return the rows of positions, and of the holders that follow from them: all count."""
    rows = []
    for number, (key, (client, ticker, amount, place, is_open)) in enumerate(forms.items()):
        row = {"key": key, "partition": 0, "offset": number, "timestamp": START, "seq": number}
        row |= {"snapshot": 1, "retry_offset": None, "is_open": is_open, "client": client}
        rows.append(row | {"ticker": ticker, "amount": amount, "exchange": place})
    return {POSITIONS: rows, SHARE_HOLDERS: holders_of(forms), EXCHANGES: []}


def holders_of(forms: Mapping[str, Form]) -> list[dict[str, Any]]:
    held: dict[str, list[str]] = {form[0]: [] for form in forms.values()}
    for key, form in forms.items():
        if form[4]:
            held[form[0]].append(key)
    return [
        {"client": client, "positions": sorted(ids), "snapshot": 1, "shard": 0}
        for client, ids in held.items()
    ]


def committed(settings: Settings, tables: dict[Table, Any], folders: dict[str, str]) -> Snapshot:
    versions = {
        table.name: overwrite(settings, table.located(folders), rows)
        for table, rows in tables.items()
    }
    return replace(snapshot(1, versions), folders=folders)


def expected(old: dict[str, Any], new: dict[str, Any]) -> dict[str, int]:
    both = old.keys() & new.keys()
    return {
        "equal": sum(old[key] == new[key] for key in both),
        "changed": sum(old[key] != new[key] for key in both),
        "only_old": len(old.keys() - new.keys()),
        "only_new": len(new.keys() - old.keys()),
    }


def test_random_views_differ_as_dicts_do(settings: Settings) -> None:
    random = Random(20)  # noqa: S311

    def forms() -> dict[str, Any]:
        def one() -> Form:
            client, ticker = random.choice(["a", "b", "c"]), random.choice(["T", "it's"])
            amount = random.choice(["1", "1.0", None])
            return client, ticker, amount, random.choice(["X", "Y"]), random.random() < 0.7

        return {key: one() for key in "123456789" if random.random() < 0.8}

    for _ in range(12):
        first, then = forms(), forms()
        then = {**then, **{key: form for key, form in first.items() if random.random() < 0.5}}
        old = committed(settings, view(first), {})
        new = committed(settings, view(then), FOLDERS)
        found = compare(installed(settings).tables, installed(settings).kafka, old, new)
        opened = [{k: f for k, f in forms.items() if f[4]} for forms in (first, then)]
        lists = [
            {row["client"]: row["positions"] for row in holders_of(forms) if row["positions"]}
            for forms in (first, then)
        ]
        assert vars(found.positions) == expected(*opened)
        assert vars(found.holders) == expected(*lists)
        sampled = {one["position"]: one for one in found.samples if "position" in one}
        assert {*sampled} == {
            key for key in {**opened[0], **opened[1]} if opened[0].get(key) != opened[1].get(key)
        }
        for key, one in sampled.items():
            sides = [one[side] and one[side]["client"] for side in ("old", "new")]
            assert sides == [forms[key][0] if key in forms else None for forms in opened]


def test_a_sample_of_a_holder_names_the_records_that_explain_it(settings: Settings) -> None:
    old = committed(settings, view({"1": ("a", "T", "1", "X", True)}), {})
    moved = {"1": ("a", "T", "1", "X", True), "2": ("a", "T", "1", "Y", True)}
    new = committed(settings, view(moved), FOLDERS)
    found = compare(installed(settings).tables, installed(settings).kafka, old, new)
    [_, sample] = found.samples
    assert (sample["client"], sample["old"], sample["new"]) == ("a", ["1"], ["1", "2"])
    [record] = sample["records"]
    assert (record["position"], record["in"], record["offset"]) == ("2", "new", 1)
    assert any(
        "client a: changed: old 1, new 1, 2 (2 by positions[0]@1" in line for line in found.lines()
    )


def others(**rows: list[dict[str, Any]]) -> dict[Table, Any]:
    """Return tables of no position, and with these rows of other tables."""
    tables = {table.name: table for table in (CLIENTS, EXCHANGES, REJECTED_RECORDS)}
    return view({}) | {table: rows.get(name, []) for name, table in tables.items()}


def latest(key: str, **columns: object) -> dict[str, Any]:
    row = {"key": key, "partition": 0, "offset": 1, "timestamp": START, "seq": 1, "snapshot": 1}
    return row | {"retry_offset": None, "is_open": True} | columns


def rejected(offset: int, at: datetime = START) -> dict[str, Any]:
    return rejected_row("positions", offset, partition=3, timestamp=at)


ALL = {t.name: f"{t.name}.2" for t in (POSITIONS, SHARE_HOLDERS, CLIENTS, EXCHANGES)} | {
    REJECTED_RECORDS.name: "rejected_records.2"
}


def test_contacts_exchanges_and_rejected_records_are_compared_and_no_contact_is_told(
    settings: Settings,
) -> None:
    contact = {"name": "Ann Smith", "email": "ann@x.example", "subscribed": True}
    before = others(
        clients=[latest("a", **contact), latest("b", **contact), latest("c", **contact)],
        exchanges=[latest("LON", country="GB"), latest("PAR", country="FR")],
        rejected_records=[rejected(1), rejected(2), rejected(3, START - timedelta(days=1))],
    )
    after = others(
        clients=[latest("a", **contact), latest("b", **contact | {"email": "secret@y.example"})],
        exchanges=[latest("LON", country="US"), latest("TYO", country="JP")],
        rejected_records=[rejected(2), rejected(3), rejected(3, START - timedelta(days=1))],
    )
    old, new = committed(settings, before, {}), committed(settings, after, ALL)
    found = compare(installed(settings).tables, installed(settings).kafka, old, new)
    assert found.others == {
        "clients": Differences(1, 1, 1, 0),
        "exchanges": Differences(0, 1, 1, 1),
        "rejected": Differences(2, 0, 1, 1),
    }
    assert (found.is_none, found.share) == (False, 1.0)
    assert {*found.lines()[2:]} >= {
        "contacts: 1 equal, 1 changed, 1 only in the old, 0 only in the new",
        "contact b: changed in email",
        "contact c: only in the old",
        "exchange LON: changed in country: old GB, new US",
        "exchange TYO: only in the new: old none, new JP",
        "rejected record positions[3]@3 of 2026-11-16T00:00:00Z: only in the new",
    }
    assert not any(word in json.dumps(found.as_json()) for word in ("ann", "Smith", "secret"))


def test_contacts_that_may_not_be_read_any_more_are_not_compared(settings: Settings) -> None:
    old = replace(committed(settings, others(), {}), erased_in=9)
    found = compare(
        installed(settings).tables,
        installed(settings).kafka,
        old,
        committed(settings, others(), ALL),
    )
    assert {*found.not_compared} == {"clients", "rejected"}
    assert found.as_json()["clients"] is None
    assert "a client was erased in snapshot 9" in found.as_json()["not_compared"]["clients"]
    assert found.is_none


def test_each_kind_of_difference_is_sampled(settings: Settings) -> None:
    first = {str(n): ("a", "T", "1", "X", True) for n in range(40)}
    then = {key: ("a", "T", "2", "X", True) for key in first if int(key) < 30}
    then |= {str(n): ("a", "T", "1", "X", True) for n in range(100, 130)}
    views = committed(settings, view(first), {}), committed(settings, view(then), FOLDERS)
    found = compare(installed(settings).tables, installed(settings).kafka, *views)
    kinds = Counter(one["difference"] for one in found.samples if "position" in one)
    assert {*kinds} == {"changed", "only_old", "only_new"}
    assert sum(kinds.values()) == 20


def test_views_that_share_all_files_differ_in_nothing(settings: Settings) -> None:
    forms = {"1": ("a", "T", None, "X", True), "2": ("a", "T", "1", "Y", False)}
    old = committed(settings, view(forms), {})
    found = compare(installed(settings).tables, installed(settings).kafka, old, old)
    assert found.is_none
    assert (found.positions.equal, found.holders.equal, found.samples) == (1, 1, [])
