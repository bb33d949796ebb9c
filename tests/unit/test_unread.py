"""Which offsets a run reads, what is wrong with them, and what becomes `looked_at`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from shardpost.delta.snapshot import NEVER, Counts, IncompleteLook, Snapshot
from shardpost.holders.model.unread import Look, Unread, gaps, ranges_to_read, retries_to_read
from shardpost.kafka.coordinates import Coordinates, OffsetRange, Offsets, OpenTransaction, ends_of


def test_a_first_run_reads_from_the_low_watermark() -> None:
    assert ranges_to_read({}, {"positions": {0: (5, 9), 1: (0, 0)}}) == [
        OffsetRange("positions", 0, 5, 9)
    ]


def test_a_later_run_reads_what_came_after_and_a_new_partition_whole() -> None:
    marks = {"positions": {0: (0, 9), 1: (0, 4), 2: (0, 3)}}
    assert ranges_to_read({"positions": {0: 9, 1: 2}}, marks) == [
        OffsetRange("positions", 1, 2, 4),
        OffsetRange("positions", 2, 0, 3),
    ]
    assert ends_of(marks) == {"positions": {0: 9, 1: 4, 2: 3}}


def test_records_deleted_before_being_read_and_ends_that_went_back_are_all_named() -> None:
    marks = {"positions": {0: (6, 9), 1: (0, 4), 2: (7, 9)}, "clients": {0: (0, 2)}}
    read = {"positions": {0: 5, 1: 4, 2: 3}, "clients": {0: 7, 1: 8}}
    found = gaps(read, marks)
    assert found.deleted == {
        "positions": [
            "positions[0]: offsets 5 to 5 were deleted before being read",
            "positions[2]: offsets 3 to 6 were deleted before being read",
        ]
    }
    assert found.shorter == {
        "clients": [
            "clients[0]: read up to 7, but it ends at 2",
        ]
    }
    assert found.absent == {"clients": ["clients[1] was read, but does not exist"]}
    assert ranges_to_read({"positions": read["positions"]}, {"positions": marks["positions"]}) == [
        OffsetRange("positions", 0, 6, 9),
        OffsetRange("positions", 2, 7, 9),
    ]


def test_retries_that_were_deleted_are_named_and_stop_nothing() -> None:
    marks = {"retries": {0: (5, 9), 1: (0, 2), 2: (3, 3), 3: (4, 7)}}
    ranges, deleted = retries_to_read({"retries": {0: 3, 1: 8, 2: 3}}, marks)
    assert ranges == [
        OffsetRange("retries", 0, 5, 9),
        OffsetRange("retries", 1, 0, 2),  # recreated: it ends before what was read of it
        OffsetRange("retries", 3, 4, 7),
    ]
    assert [str(one) for one in deleted] == ["retries[0]: offsets 3 to 4"]


NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=15)
EARLIER = NOW - timedelta(minutes=30)


def last(looked_at: datetime, incomplete: IncompleteLook | None = None) -> Snapshot:
    made = Snapshot(1, looked_at, looked_at, {}, {}, Counts(), "US", 2, "test", "test")
    return replace(made, incomplete=incomplete)


def times(
    snapshot: Snapshot | None, *, high: int, read: int
) -> tuple[datetime, IncompleteLook | None]:
    """Look at one partition, of which so much is there, and so much of it can be read."""
    ends: Offsets = {"positions": {0: read}}
    begins = Coordinates("positions", 0, read)
    hidden = [OpenTransaction(begins, EARLIER)] if read < high else []
    high_marks = {"positions": {0: high}}
    found = Unread([], ends, {}, {}, {}, high=high_marks, open_transactions=hidden)
    return Look(NOW, snapshot, {}).times(found)


def noted(at: datetime, end: int, read_at: datetime) -> IncompleteLook:
    return IncompleteLook(at, {"positions": {0: end}}, read_at)


def test_what_could_be_read_to_its_end_was_looked_at_now() -> None:
    assert times(last(BEFORE, noted(EARLIER, 7, BEFORE)), high=9, read=9) == (NOW, None)
    assert times(None, high=9, read=9) == (NOW, None)


def test_with_an_open_transaction_looked_at_stays_what_it_was() -> None:
    assert times(last(BEFORE), high=9, read=5) == (BEFORE, noted(NOW, 9, NOW))


def test_before_the_first_snapshot_it_was_never() -> None:
    assert times(None, high=9, read=5) == (NEVER, noted(NOW, 9, NOW))


def test_a_hanging_transaction_keeps_the_first_look_that_is_to_be_reached() -> None:
    before = last(EARLIER, noted(BEFORE, 9, BEFORE))
    assert times(before, high=20, read=5) == (EARLIER, noted(BEFORE, 9, NOW))


def test_transactions_one_after_the_other_let_it_follow_them() -> None:
    before = last(EARLIER, noted(BEFORE, 9, BEFORE))
    assert times(before, high=20, read=9) == (BEFORE, noted(NOW, 20, NOW))


def test_a_topic_that_is_not_read_any_more_is_not_waited_for() -> None:
    moved = IncompleteLook(BEFORE, {"positions": {0: 9}, "retries": {0: 5}}, BEFORE)
    assert times(last(EARLIER, moved), high=20, read=9)[0] == BEFORE
