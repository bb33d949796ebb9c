"""Which offsets a run reads, and what is wrong with them."""

from shardpost.holders.model.unread import gaps, ranges_to_read, retries_to_read
from shardpost.kafka.coordinates import OffsetRange, ends_of


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
