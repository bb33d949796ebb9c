"""The plain fold by which homes of benchmarks grow old, held against that of the whole stream."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from bench import stream
from bench.plain_fold import Holdings
from bench.stream import Record

RECORDS = 2_000


@pytest.mark.parametrize("seed", range(5))
def test_holdings_are_those_of_a_fold_wherever_the_stream_is_cut(seed: int) -> None:
    holdings, read = Holdings(), 0
    for part in _cut(stream.records(RECORDS), Random(seed)):  # noqa: S311 - the same each time
        holdings.apply(part)
        read += len(part)
        assert _held(holdings) == stream.holders(stream.records(RECORDS, more=read - RECORDS))


def test_only_clients_are_named_whose_holdings_change() -> None:
    holdings = Holdings()
    for part in _cut(stream.records(RECORDS), Random(7)):  # noqa: S311
        before = _held(holdings)
        named = holdings.apply(part)
        after = _held(holdings)
        changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
        assert changed == named


def test_counts_are_of_open_positions_and_of_clients_that_hold_some() -> None:
    holdings = Holdings()
    holdings.apply(stream.records(RECORDS))
    held = _held(holdings)
    assert holdings.counts.holders == len(held)
    assert holdings.counts.held == sum(map(len, held.values()))
    assert holdings.counts.positions == len(_open(stream.records(RECORDS)))


def _held(holdings: Holdings) -> dict[str, list[int]]:
    return {client: sorted(map(int, ids)) for client, ids in holdings.held.items() if ids}


def _open(records: Iterator[Record]) -> set[str]:
    found = set[str]()
    for key, value, _ in records:
        (found.discard if value is None else found.add)(key)
    return found


def _cut(records: Iterator[Record], random: Random) -> Iterator[list[Record]]:
    while part := [*islice(records, random.randint(1, 300))]:
        yield part
