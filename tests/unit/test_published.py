"""What a partition was published at, and how it is seen that its records are others now."""

import pytest

from shardpost.holders.model.published import Published, SnapshotRun, Watermarks

RUNS = {1: "one", 2: "two", 3: "three"}
AT = Published(SnapshotRun(2, "two"), None, low=10, end=20)
THERE = Watermarks(10, 20)


@pytest.mark.parametrize(
    "published",
    [
        Published(),
        AT,
        Published(SnapshotRun(2, "two"), 1_000, 3, 4, SnapshotRun(3, "three")),
        Published(SnapshotRun(0), None, 3, 4, SnapshotRun(3, "three")),
    ],
)
def test_what_is_committed_is_read_again(published: Published) -> None:
    assert Published.of(published.as_metadata()) == published


def test_where_nothing_was_committed_nothing_is_published() -> None:
    assert Published.of(None) == Published.of("") == Published()


@pytest.mark.parametrize(
    ("runs", "now", "wrong"),
    [
        (RUNS, THERE, None),
        (RUNS, Watermarks(10, 25), None),  # whose records those are is to be seen
        ({1: "one"}, THERE, "snapshot 2 was published, but is not in these tables"),
        (RUNS | {2: "other"}, THERE, "snapshot 2 was published, but is not in these tables"),
        (RUNS, Watermarks(11, 20), "the records from 10 to 10 were deleted"),
        (RUNS, Watermarks(10, 19), "it ends at 19, and ended at 20"),
    ],
)
def test_what_is_wrong_is_told(runs: dict[int, str], now: Watermarks, wrong: str | None) -> None:
    assert AT.what_is_wrong(runs, now) == wrong


def test_a_part_of_a_snapshot_that_is_gone_is_wrong_and_of_one_that_is_there_is_not() -> None:
    partly = AT.then_partly(SnapshotRun(3, "three"), 25)
    assert partly.what_is_wrong(RUNS, Watermarks(10, 25)) is None
    said = "a part of snapshot 3 was published, but is not in these tables"
    assert partly.what_is_wrong(RUNS | {3: "other"}, Watermarks(10, 25)) == said
    whole = partly.then(SnapshotRun(3, "three"), 30, None)
    assert whole == Published(SnapshotRun(3, "three"), None, 10, 30)


def test_the_smallest_limit_that_a_list_was_too_large_for_is_kept() -> None:
    made = SnapshotRun(3, "three")
    first = AT.then(made, 30, 1_000)
    assert first.largest == 1_000
    assert first.then(made, 40, 2_000).largest == 1_000
    assert first.then(made, 40, None).largest == 1_000
    assert first.then(made, 40, 500).largest == 500
