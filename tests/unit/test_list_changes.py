"""What changed positions do to the lists of clients, against lists made anew of all positions."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

from shardpost.delta.table import text_literal
from shardpost.holders.model.who_holds import RuleAt, changed_holders, position_sort_key
from shardpost.holders.spark.fold import ListChange, list_changes
from shardpost.values.holding_rule import Rule
from tests.support.how_far import some


@dataclass(frozen=True)
class Side:
    """A position as its table has it before a change, or after it; None where it has no row."""

    is_open: bool | None
    client: str | None
    exchange: str | None


IDS = ["1", "01", "2", "10", "a", "B", "é", ""]
CLIENTS, EXCHANGES = ["c", "d"], ["NASDAQ", "LON", None]
OPEN = st.builds(Side, st.just(True), st.sampled_from(CLIENTS), st.sampled_from(EXCHANGES))
SIDES = st.one_of(OPEN, st.just(Side(False, None, None)), st.just(Side(None, None, None)))
COUNTING = st.sets(st.sampled_from(["NASDAQ", "LON"]))


def changes_of(
    positions: Iterable[tuple[str, Side, Side]], before: set[str], now: set[str]
) -> dict[str, ListChange]:
    """Return what DataFusion finds of (id, before, after): the changes of each client's list."""

    def literal(name: str, value: object) -> str:
        text = text_literal(value) if isinstance(value, str) else str(value).lower()
        kind = "BOOLEAN" if name.endswith("is_open") else "STRING"
        return f"CAST({'NULL' if value is None else text} AS {kind})"

    names = ["key", "old_is_open", "old_client", "old_exchange", "is_open", "client", "exchange"]
    rows = [(id_, *astuple(old), *astuple(new)) for id_, old, new in positions] or [(None,) * 7]
    values = ", ".join(f"({', '.join(map(literal, names, row))})" for row in rows)
    table = f"(SELECT * FROM (VALUES {values}) v ({', '.join(names)}) WHERE key IS NOT NULL)"  # noqa: S608
    by_then, by_now = (RuleAt(Rule("US"), dict.fromkeys(codes, "US")) for codes in (before, now))
    sql = changed_holders(by_then, by_now).format(changed=table)
    found = pa.RecordBatchReader.from_stream(QueryBuilder().execute(sql)).read_all()
    return list_changes(zip(*(column.to_pylist() for column in found.columns), strict=True))


def lists(positions: dict[str, Side], counting: set[str]) -> dict[str, list[str]]:
    """Return the ids that each client holds, in their order."""
    held: dict[str, list[str]] = {}
    for id_ in sorted(positions, key=position_sort_key):
        side = positions[id_]
        if side.is_open and side.client is not None and side.exchange in counting:
            held.setdefault(side.client, []).append(id_)
    return held


@given(
    st.dictionaries(st.sampled_from(IDS), st.tuples(SIDES, SIDES)),
    st.dictionaries(st.sampled_from([f"{id_}9" for id_ in IDS]), SIDES),
    COUNTING,
)
def test_lists_after_changes_are_those_of_all_positions(
    changed: dict[str, tuple[Side, Side]], others: dict[str, Side], counting: set[str]
) -> None:
    before = lists(others | {id_: old for id_, (old, _) in changed.items()}, counting)
    after = lists(others | {id_: new for id_, (_, new) in changed.items()}, counting)
    sides = [(id_, old, new) for id_, (old, new) in changed.items()]
    changes = changes_of(sides, counting, counting)
    clients = {*before, *after}
    now = {
        client: changes.get(client, ListChange()).applied_to(before.get(client, []))
        for client in clients
    }
    assert now == {client: after.get(client, []) for client in clients}
    assert all(before.get(client) != after.get(client) for client in changes)


def test_an_exchange_that_ceases_to_count_takes_changed_positions_away() -> None:
    held = Side(True, "c", "LON")
    changes = changes_of([("7", held, held)], {"LON", "NASDAQ"}, {"NASDAQ"})
    assert changes == {"c": ListChange([], {"7"})}
    assert changes["c"].applied_to(["2", "7", "x"]) == ["2", "x"]


@pytest.mark.parametrize("code", some(["{x}", "O'Ne\\il", "", "LON"]))
def test_any_name_of_an_exchange_counts_as_it_is(code: str) -> None:
    side, many = Side(True, "c", code), {str(number) for number in range(20_000)}
    assert changes_of([("7", side, side)], many, {code}) == {"c": ListChange(["7"], set())}
    assert changes_of([("7", side, side)], set(), many) == {}


@given(st.lists(st.sampled_from([*map(str, range(30)), "x", "é"])), st.data())
def test_a_list_that_changed_is_in_order(ids: list[str], data: st.DataObject) -> None:
    held, others = sorted({*ids}, key=position_sort_key), [*map(str, range(0, 60, 7)), "y"]
    change = ListChange(data.draw(st.lists(st.sampled_from([*held, *others]))), {*held[::3]})
    expected = {*held} - change.removed | {*change.added}
    assert change.applied_to(held) == sorted(expected, key=position_sort_key)
