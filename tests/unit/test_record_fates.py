"""What became of a record, where a former topic of the name had one in the same place."""

from dataclasses import replace

import pytest

from shardpost.holders.model.record_order import lowest_of
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.record_fates import Fate, FateKind, fates_of
from shardpost.kafka.records import Coordinates
from shardpost.settings import Settings
from tests.support.histories import Record, overwrite, put, snapshot
from tests.support.installed import installed

FIRST, SECOND = (Coordinates("positions", 0, offset) for offset in range(2))
RETRIED = Coordinates("retries", 0, 0)
RECORD = put("1", "client1", "NASDAQ")


def of_former(offset: int, retry_offset: int | None = None) -> Record:
    return replace(RECORD, seq=offset, snapshot=1, retry_offset=retry_offset)


def of_present(offset: int, retry_offset: int | None = None) -> Record:
    return replace(RECORD, seq=lowest_of(1) + offset, snapshot=2, retry_offset=retry_offset)


def fate(settings: Settings, at: Coordinates, *read: Record, ends: int) -> Fate:
    """Return the fate of a record of a recreated topic, which was read up to an offset."""
    rows = [record.row() | {"partition": 0} for record in read]
    for row in rows:
        row["offset"] = row["seq"] % lowest_of(1)
    view = snapshot(2, {POSITION_EVENTS.name: overwrite(settings, POSITION_EVENTS, rows)})
    known = {"positions": {0: ends}, "retries": {0: ends}}
    view = replace(view, generations={"positions": 1}, end_offsets=known)
    return fates_of(installed(settings), view, "positions", [at])[at]


@pytest.mark.parametrize("order", [1, -1])
def test_a_record_is_not_superseded_by_itself(settings: Settings, order: int) -> None:
    read = [of_former(0), of_former(1), of_present(0), of_present(1)][::order]
    assert fate(settings, FIRST, *read, ends=2) == Fate(FateKind.SUPERSEDED, 2, by=SECOND)
    assert fate(settings, SECOND, *read, ends=2) == Fate(FateKind.TAKEN, 2)


@pytest.mark.parametrize("order", [1, -1])
def test_a_retry_has_the_fate_of_its_own_and_not_of_one_of_a_former_topic(
    settings: Settings, order: int
) -> None:
    read = [of_former(0, retry_offset=0), of_present(0, retry_offset=0)][::order]
    assert fate(settings, RETRIED, *read, ends=1) == Fate(FateKind.TAKEN, 2)


def test_what_is_not_read_yet_has_no_fate_of_a_former_topic(settings: Settings) -> None:
    read = [of_former(0, retry_offset=0)]
    assert fate(settings, RETRIED, *read, ends=0) == Fate(FateKind.UNREAD)
