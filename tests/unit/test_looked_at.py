"""What may become `looked_at`, by what a look could read."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from shardpost.delta.snapshot import NEVER, Counts, IncompleteLook, Snapshot
from shardpost.holders.model.unread import Look, Unread
from shardpost.kafka.coordinates import Coordinates, Offsets, OpenTransaction

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
