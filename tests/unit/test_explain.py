"""What put or took a position: a replay in plain Python, and what it reads of the history."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.query import OpenedTables
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import text_literal
from shardpost.holders import position_history as module
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.explain import (
    Change,
    ExchangeRecord,
    PositionRecord,
    Replay,
    Transition,
    explain,
)
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import Order, order_of
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.position_history import explanation
from shardpost.kafka.records import Coordinates
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support.appended_histories import AppendedHistories
from tests.support.histories import (
    Batch,
    History,
    Record,
    close,
    country_of,
    history_of,
    holders_of,
    put,
    reconcile,
    reject,
    retry,
)
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.random_histories import BATCHES, LAYERED_BATCHES

US = country_of("NASDAQ", "US")
GB = country_of("LON", "GB")


def common(record: Record, topic: str) -> tuple[str, Order, int, Coordinates, datetime]:
    """Return the fields that records of both topics have."""
    order = order_of(record.seq, record.snapshot, record.retry_offset, record.kind)
    offset = record.retry_offset
    at = (topic, 0, record.seq) if offset is None else ("retries", 0, offset)
    return record.key, order, record.snapshot, Coordinates(*at), record.timestamp


def read(history: History) -> tuple[list[PositionRecord], list[ExchangeRecord]]:
    positions = [
        PositionRecord(*common(r, "positions"), r.client, r.exchange, r.ticker, r.amount)
        for r in history.positions
        if r.kind != RecordKind.REJECTED
    ]
    exchanges = [
        ExchangeRecord(*common(r, "exchanges"), r.country)
        for r in history.exchanges
        if r.kind != RecordKind.REJECTED
    ]
    return positions, exchanges


def explained(client: str, *batches: Batch) -> list[tuple[str, ...]]:
    """Return (position, change, topic@offset, why) for a client."""
    found = explain(client, *read(history_of(batches)), Rule("US"))
    return [
        (t.position, t.change, f"{t.coordinates.topic}@{t.coordinates.offset}", t.why)
        for t in found
    ]


def replayed(found: list[Transition]) -> dict[str, set[str]]:
    held: dict[str, set[str]] = {}
    for transition in found:
        ids = held.setdefault(transition.client, set())
        if transition.change is Change.PUT:
            assert transition.position not in ids
            ids.add(transition.position)
        elif transition.change is Change.AMENDED:
            assert transition.position in ids
        else:
            ids.remove(transition.position)
    return {client: ids for client, ids in held.items() if ids}


@given(strategies.lists(BATCHES, min_size=1, max_size=3))
def test_replaying_the_changes_gives_the_holders_of_every_snapshot(batches: list[Batch]) -> None:
    for number in range(1, len(batches) + 1):
        history = history_of(batches[:number])
        positions, exchanges = read(history)
        found = [
            transition
            for key in {record.key for record in positions}
            for own in [[one for one in positions if one.key == key]]
            for transition in Replay.of(own, exchanges, Rule("US")).changes
        ]
        expected = {client: set(ids) for client, ids in holders_of(history).items()}
        assert replayed(found) == expected


@given(strategies.lists(BATCHES, min_size=1, max_size=3))
def test_what_is_explained_of_a_past_snapshot_is_of_a_later_one_too(batches: list[Batch]) -> None:
    before = [
        (t[0], t[1], t[2]) for t in explained("client1", *batches[:-1]) if t[1] != "not counted"
    ]
    after = [(t[0], t[1], t[2]) for t in explained("client1", *batches)]
    assert [row for row in after if row in before] == before


OPENED, MOVED = put("1", "client1", "NASDAQ", 1), put("1", "client2", "NASDAQ", 7)
IN_US = "exchange NASDAQ is in US"
PUT = ("1", "put", "positions@0", IN_US)
MOVED_ON, CLOSED = "the position moved to client2", "the position is closed"
TOOK = ("1", "took", "positions@1", CLOSED)
GONE = "the topic no longer held this record: compact --reconcile closed it"


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        # A record on an exchange of the country puts, and a tombstone takes, whatever their times.
        ([Batch([OPENED, close("1", 2)], [US])], [PUT, TOOK]),
        ([Batch([OPENED, close("1", 0)], [US])], [PUT, TOOK]),
        # A change of the amount alone is no transition.
        ([Batch([OPENED, put("1", "client1", "NASDAQ", 2)], [US])], [PUT]),
        # The first record of an exchange stands before older positions that are read with it.
        ([Batch([put("1", "client1", "NASDAQ", -500)], [US])], [PUT]),
        # A country that arrives later puts by the record of the exchange.
        (
            [
                Batch([put("1", "client1", "NEW", 1)], [country_of("NEW", None, 0)]),
                Batch([], [country_of("NEW", "US", 2), country_of("NEW", "GB", 3)]),
            ],
            [
                ("1", "put", "exchanges@1", "exchange NEW is in US"),
                ("1", "took", "exchanges@2", "exchange NEW is in GB"),
            ],
        ),
        # A position that never counted is explained by its latest record.
        (
            [Batch([put("10", "client1", "XX"), *[put("2", "client1", "LON")] * 2], [GB])],
            [
                ("2", "not counted", "positions@2", "exchange LON is in GB"),
                ("10", "not counted", "positions@0", "the country of exchange XX is not known"),
            ],
        ),
        # Also if it has moved to somebody else since.
        (
            [Batch([put("1", "client1", "LON", 1), put("1", "client2", "LON", 2)], [GB])],
            [("1", "not counted", "positions@1", f"exchange LON is in GB; {MOVED_ON}")],
        ),
        # A correction of a rejected record puts, by its own coordinates; of two the later counts.
        (
            [Batch([reject("1", 1), retry(OPENED, 0)], [US])],
            [("1", "put", "retries@1", IN_US)],
        ),
        (
            [Batch([reject("1"), retry(OPENED, 0), retry(MOVED, 0)], [US])],
            [
                ("1", "put", "retries@1", IN_US),
                ("1", "took", "retries@2", MOVED_ON),
            ],
        ),
        # A correction of a good record changes nothing.
        ([Batch([OPENED], [US]), Batch([retry(MOVED, 0)])], [PUT]),
        # What a reconciliation closed is named as that, with the record that is gone.
        (
            [Batch([OPENED], [US]), Batch([reconcile("1", 5)])],
            [PUT, ("1", "reconciled", "positions@0", GONE)],
        ),
    ],
)
def test_what_put_and_took_is_named_with_its_reason(
    batches: list[Batch], expected: list[tuple[str, ...]]
) -> None:
    assert explained("client1", *batches) == expected


def test_a_position_that_moves_is_taken_from_one_client_and_put_to_the_other() -> None:
    batch = Batch([put("1", "client1", "NASDAQ", 1), put("1", "client2", "NASDAQ", 2)], [US])
    assert explained("client1", batch)[1:] == [("1", "took", "positions@1", MOVED_ON)]
    assert explained("client2", batch) == [("1", "put", "positions@1", "exchange NASDAQ is in US")]


def test_an_older_partition_read_later_changes_nothing() -> None:
    new, old = put("1", "client2", "NASDAQ"), put("1", "client1", "NASDAQ")
    history = history_of([Batch([new], [US]), Batch([old])])
    high, low = (Record(**asdict(r) | {"seq": 9 - r.seq}) for r in history.positions)
    positions, exchanges = read(History([high, low], history.exchanges))
    found = Replay.of(positions, exchanges, Rule("US")).changes
    assert [(t.client, t.change) for t in found] == [("client2", "put")]


def test_a_correction_that_comes_too_late_has_no_effect() -> None:
    opened, late = put("1", "client2", "NASDAQ", 2), put("1", "client1", "NASDAQ", 7)
    batch = Batch([reject("1", 1), opened, retry(late, origin=1)], [US])
    assert [row[2] for row in explained("client2", batch)] == ["positions@1"]
    assert explained("client1", batch) == [
        ("1", "not counted", "positions@1", MOVED_ON),
        ("1", "no effect", "retries@2", "positions[0]@1 is newer and wins"),
    ]
    closed = Batch([reject("1", 1), close("1", 2), retry(late, origin=1)], [US])
    assert explained("client1", closed)[0] == (
        "1",
        "not counted",
        "positions@1",
        CLOSED,
    )
    assert [row[1:3] for row in explained("client1", closed)[1:]] == [("no effect", "retries@2")]


def test_a_correction_of_what_a_reconciliation_closed_has_no_effect() -> None:
    late = retry(put("1", "client1", "NASDAQ", 7), origin=0)
    batches = Batch([reject("1", 1)], [US]), Batch([reconcile("1", 5)]), Batch([late])
    assert [row[1:3] for row in explained("client1", *batches)] == [
        ("not counted", "positions@0"),
        ("no effect", "retries@2"),
    ]


def test_a_record_after_a_reconciliation_opens_the_position_again() -> None:
    opened, again = put("1", "client1", "NASDAQ", 1), put("1", "client2", "NASDAQ", 6)
    batches = Batch([opened], [US]), Batch([reconcile("1", 5)]), Batch([again])
    assert [row[1] for row in explained("client1", *batches)] == ["put", "reconciled"]
    assert [row[1:3] for row in explained("client2", *batches)] == [("put", "positions@2")]


def test_the_json_form_has_the_fields_of_the_contract() -> None:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    put_by = Coordinates("positions", 3, 41)
    assert Transition("client1", "1", Change.PUT, put_by, at, "").as_json() == {
        "position": "1",
        "change": "put",
        "topic": "positions",
        "partition": 3,
        "offset": 41,
        "timestamp": "2026-11-16T00:00:00+00:00",
    }


# By one scan of all columns, as it was before the keys were asked for first.
REFERENCE = """
SELECT h.* FROM position_events h WHERE h.kind <> 'rejected'
AND h.key IN (SELECT c.key FROM position_events c WHERE c.client = {client})
"""


def by_one_scan(at: Settings, snapshot: Snapshot, client: str) -> list[Transition]:
    class Scanned(OpenedTables):
        def rows(self, sql: str) -> list[dict[str, Any]]:
            if "DISTINCT c.key" in sql:
                return super().rows(sql)
            return super().rows(REFERENCE.format(client=text_literal(client)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "OpenedTables", Scanned)
        return explanation(installed(at), snapshot, client, None)


def merged(world: AppendedHistories) -> Snapshot:
    """Return the newest snapshot with one file in the place of all of its history."""
    at, last = world.settings, snapshots.current(installed(world.settings).tables)
    version = last.tables[POSITION_EVENTS.name]
    old = [*storage.sizes(installed(at).tables, POSITION_EVENTS, version)]
    made = parquet_files.merge(
        installed(at).tables, POSITION_EVENTS, old, f"{version + 1:08d}-merged/a.parquet"
    )
    after = table_log.commit(installed(at).tables, POSITION_EVENTS, version, [made], old)
    return replace(last, tables={**last.tables, POSITION_EVENTS.name: after})


@pytest.mark.parametrize(("listed", "in_a_list"), [(1_000, 20), (1_000, 1), (1, 20), (0, 20)])
@settings(max_examples=up_to(10, quick=2))
@given(LAYERED_BATCHES, strategies.booleans())
def test_of_a_random_history_it_tells_what_one_scan_of_all_columns_tells(
    listed: int, in_a_list: int, batches: Sequence[Batch], is_merged: bool
) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEYS_LISTED", listed)
        patch.setattr(module, "KEYS_IN_A_LIST", in_a_list)
        world = AppendedHistories(Settings(home=Path(home)))
        for batch in batches:
            world.compact(batch)
        newest = snapshots.current(installed(world.settings).tables)
        expected = by_one_scan(world.settings, newest, "client1")
        seen = merged(world) if is_merged else newest
        assert explanation(installed(world.settings), seen, "client1", None) == expected


@pytest.mark.parametrize("count", [1, 20, 21, 45, 1_000, 1_001])
def test_of_any_number_of_positions_it_tells_what_one_scan_tells(
    tmp_path: Path, count: int
) -> None:
    world = AppendedHistories(Settings(home=tmp_path))
    own = [put(f"it's {n}", "client1", "NASDAQ") for n in range(count)]
    others = [put(f"{n}", "client2", "NASDAQ") for n in range(count)]
    world.compact(Batch([*own, *others], [country_of("NASDAQ", "US")]))
    world.compact(Batch([close("it's 0"), put("0", "client1", "NASDAQ")]))
    newest = snapshots.current(installed(world.settings).tables)
    found = explanation(installed(world.settings), newest, "client1", None)
    assert len(found) == count + 2
    assert found == by_one_scan(world.settings, newest, "client1")
    assert explanation(installed(world.settings), newest, "client1", "0") == found[:1]
    assert explanation(installed(world.settings), newest, "client3", None) == []


def test_a_history_is_opened_once_and_its_keys_are_asked_for_in_short_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AppendedHistories(Settings(home=tmp_path))
    world.compact(Batch([put(str(n), "client1", "NASDAQ") for n in range(45)]))
    asked: list[str] = []

    class Watched(OpenedTables):
        def rows(self, sql: str) -> list[dict[str, Any]]:
            asked.append(sql)
            return super().rows(sql)

    monkeypatch.setattr(module, "OpenedTables", Watched)
    assert len(
        explanation(
            installed(world.settings),
            snapshots.current(installed(world.settings).tables),
            "client1",
            None,
        )
    )
    keys, records = asked
    assert "DISTINCT c.key" in keys
    assert [one.count(",") + 1 for one in records.split(" IN (")[1:]] == [20, 20, 5]


def test_keys_of_every_plane_are_found_as_the_first_and_as_the_last_of_a_file(
    tmp_path: Path,
) -> None:
    who, after = "\U00020bb7\u7530", "\U0010fffd"
    tables = AppendedHistories(Settings(home=tmp_path, snapshot_days=36_500))
    tables.compact(Batch([put("1", "c1", "NASDAQ"), put(who, who, "NASDAQ")], [US]))
    tables.compact(Batch([put(f"{who}2", who, "NASDAQ"), put(after, after, "NASDAQ")]))
    for client, expected in ((who, [who, f"{who}2"]), (after, [after])):
        asked = HoldersQuery(client, as_of=datetime(2030, 1, 1, tzinfo=UTC))
        newest = snapshots.current(installed(tables.settings).tables)
        assert query_holders(installed(tables.settings).tables, newest, asked) == {client: expected}
        assert [
            one.position for one in explanation(installed(tables.settings), newest, client, None)
        ] == expected
        for position in expected:
            assert explanation(installed(tables.settings), newest, client, position)
        sql = f"SELECT key FROM positions WHERE client = {text_literal(client)} ORDER BY 1"  # noqa: S608
        assert [row["key"] for row in tables.rows(sql)] == expected
