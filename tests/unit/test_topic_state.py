"""What a run reads of its topics, when it was looked at, and what Kafka may have deleted unread."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shardpost.delta.snapshot import NEVER, Cleaning, Counts, IncompleteLook, Snapshot
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.model.lost_records import (
    NamedKeys,
    TombstonesLostError,
    UncertainKeysError,
    compaction_of,
    require_certain,
    require_no_gaps,
    require_tombstones_kept,
)
from shardpost.holders.model.topic_state import (
    TopicState,
    Unread,
    gaps,
    ranges_to_read,
    retries_to_read,
)
from shardpost.kafka.offsets import ends_of
from shardpost.kafka.records import Coordinates, OffsetRange, Offsets, OpenTransaction
from shardpost.values.holding_rule import Rule


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
    made = Snapshot(1, looked_at, looked_at, {}, {}, Counts(), Rule("US"), 2, "test", "test")
    return replace(made, incomplete=incomplete)


def times(
    snapshot: Snapshot | None, *, high: int, read: int
) -> tuple[datetime, IncompleteLook | None]:
    """TopicState at one partition, of which so much is there, and so much of it can be read."""
    ends: Offsets = {"positions": {0: read}}
    begins = Coordinates("positions", 0, read)
    hidden = [OpenTransaction(begins, EARLIER)] if read < high else []
    high_marks = {"positions": {0: high}}
    found = Unread([], ends, {}, {}, high=high_marks, open_transactions=hidden)
    return TopicState(NOW, snapshot, {}).times(found)


def noted(at: datetime, end: int, read_at: datetime) -> IncompleteLook:
    return IncompleteLook(at, {"positions": {0: end}}, read_at)


HANGING = last(EARLIER, noted(BEFORE, 9, BEFORE))


@pytest.mark.parametrize(
    ("snapshot", "high", "read", "expected"),
    [
        # What could be read to its end was looked at now.
        (last(BEFORE, noted(EARLIER, 7, BEFORE)), 9, 9, (NOW, None)),
        (None, 9, 9, (NOW, None)),
        # With an open transaction it stays what it was; before the first snapshot it was never.
        (last(BEFORE), 9, 5, (BEFORE, noted(NOW, 9, NOW))),
        (None, 9, 5, (NEVER, noted(NOW, 9, NOW))),
        # A hanging transaction keeps the first look that is to be reached; later ones let it go on.
        (HANGING, 20, 5, (EARLIER, noted(BEFORE, 9, NOW))),
        (HANGING, 20, 9, (BEFORE, noted(NOW, 20, NOW))),
    ],
)
def test_looked_at_follows_what_could_be_read(
    snapshot: Snapshot | None,
    high: int,
    read: int,
    expected: tuple[datetime, IncompleteLook | None],
) -> None:
    assert times(snapshot, high=high, read=read) == expected


def test_a_topic_that_is_not_read_any_more_is_not_waited_for() -> None:
    moved = IncompleteLook(BEFORE, {"positions": {0: 9}, "retries": {0: 5}}, BEFORE)
    assert times(last(EARLIER, moved), high=20, read=9)[0] == BEFORE


DAY = 86_400_000
CONFIG = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(DAY),
    "delete.retention.ms": str(DAY),
}
COMPACTED = compaction_of(CONFIG)
BOTH = compaction_of(CONFIG | {"cleanup.policy": "compact,delete"})
HOLES = {"positions": (300, 250)}  # of so many offsets, so many records


def read_at(looked_at: datetime, at: datetime | None = None) -> Snapshot:
    return last(looked_at, None if at is None else IncompleteLook(looked_at, {}, at))


def test_holes_after_longer_than_tombstones_are_kept_are_refused_by_name() -> None:
    last = read_at(NOW - timedelta(days=45))
    with pytest.raises(TombstonesLostError) as refused:
        require_tombstones_kept(HOLES, {"positions": COMPACTED}, last, NOW)
    assert refused.value.exit_code == NEEDS_ATTENTION
    said = str(refused.value)
    assert "positions has records at 250 of the 300 offsets after the last snapshot" in said
    assert "keeps tombstones for 2 d" in said
    assert "last read at 2026-10-09 12:00 UTC, 45 d ago" in said
    assert "nothing was changed. Run `shardpost compact --reconcile`" in said


@pytest.mark.parametrize(
    ("read", "age", "config"),
    [
        ((300, 300), timedelta(days=45), CONFIG),
        ((300, 250), timedelta(days=2), CONFIG),
        ((300, 250), timedelta(days=45), {"cleanup.policy": "delete"}),
        (
            (300, 250),
            timedelta(days=45),
            CONFIG | {"delete.retention.ms": str(2**63 - 1)},
        ),
    ],
)
def test_no_holes_or_a_recent_look_or_no_compaction_are_no_suspicion(
    read: tuple[int, int], age: timedelta, config: dict[str, str | None]
) -> None:
    require_tombstones_kept(
        {"positions": read}, {"positions": compaction_of(config)}, read_at(NOW - age), NOW
    )


def test_each_topic_is_held_against_its_own_retention() -> None:
    short = compaction_of(CONFIG | {"min.compaction.lag.ms": "0", "delete.retention.ms": "1000"})
    read = HOLES | {"clients": (9, 8)}
    compactions = {"positions": COMPACTED, "clients": short}
    with pytest.raises(TombstonesLostError) as refused:
        require_tombstones_kept(read, compactions, read_at(NOW - timedelta(minutes=1)), NOW)
    assert "clients has records at 8 of the 9 offsets" in str(refused.value)
    assert "keeps tombstones for 1 s" in str(refused.value)
    assert "positions" not in str(refused.value).split("Positions that")[0]


def test_gaps_name_the_way_out_that_the_topics_allow() -> None:
    require_no_gaps([], {})
    with pytest.raises(ShardpostError) as refused:
        require_no_gaps(["positions[0]: read up to 5, but it ends at 0"], {"positions": COMPACTED})
    assert "catch up with the input topics: positions[0]: read up to 5" in str(refused.value)
    assert "Run `shardpost compact --reconcile`" in str(refused.value)
    assert "another SHARDPOST_TABLES" not in str(refused.value)
    with pytest.raises(ShardpostError, match=r"has cleanup.policy=compact,delete: c"):
        require_no_gaps(["positions[0]: read up to 5, but it ends at 0"], {"positions": BOTH})


def test_what_a_service_does_not_say_of_its_compaction_has_kafkas_default() -> None:
    assert compaction_of(
        {"cleanup.policy": "compact", "delete.retention.ms": None}
    ) == compaction_of(CONFIG | {"min.compaction.lag.ms": "0", "delete.retention.ms": str(DAY)})


def test_behind_an_open_transaction_tombstones_are_kept_from_the_latest_look_on() -> None:
    long_ago, days = NOW - timedelta(days=45), timedelta(days=1)
    assert not COMPACTED.may_have_lost(read_at(long_ago, NOW - days), NOW)
    assert COMPACTED.may_have_lost(read_at(long_ago, NOW - days - timedelta(seconds=1)), NOW)
    # What was read at once has the lag as well.
    assert not COMPACTED.may_have_lost(read_at(NOW - 2 * days), NOW)
    assert COMPACTED.may_have_lost(read_at(NOW - 2 * days - timedelta(seconds=1)), NOW)


def test_a_superseded_record_may_be_gone_after_the_lag_alone() -> None:
    day = timedelta(days=1)
    assert not COMPACTED.may_have_superseded(read_at(NOW - day), NOW)
    assert COMPACTED.may_have_superseded(read_at(NOW - day - timedelta(seconds=1)), NOW)
    # Behind an open transaction the lag may be over already.
    assert COMPACTED.may_have_superseded(read_at(NOW - 2 * day, NOW), NOW)
    only_by_age = compaction_of(CONFIG | {"cleanup.policy": "delete"})
    assert not only_by_age.may_have_superseded(read_at(NEVER), NOW)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({}, timedelta(hours=1)),
        ({"segment.ms": "100"}, timedelta(milliseconds=100)),
        ({"max.compaction.lag.ms": "60000"}, timedelta(minutes=1)),
        ({"min.compaction.lag.ms": str(DAY), "segment.ms": "100"}, timedelta(days=1)),
    ],
)
def test_without_a_lag_a_record_is_kept_while_its_segment_is_written_to(
    config: dict[str, str], kept: timedelta
) -> None:
    found = compaction_of({"cleanup.policy": "compact"} | config)
    assert not found.may_have_superseded(read_at(NOW - kept), NOW)
    assert found.may_have_superseded(read_at(NOW - kept - timedelta(milliseconds=1)), NOW)
    raised = compaction_of({"cleanup.policy": "compact"}).stricter(found.cleaning)
    assert raised.segment == found.segment


def test_a_look_at_an_unknown_time_is_too_old() -> None:
    with pytest.raises(TombstonesLostError, match="not known when the inputs were last read"):
        require_tombstones_kept(HOLES, {"positions": COMPACTED}, read_at(NEVER), NOW)


@pytest.mark.parametrize(
    "raised",
    [
        {"delete.retention.ms": str(45 * DAY)},
        {"min.compaction.lag.ms": str(45 * DAY)},
        {"cleanup.policy": "delete"},
    ],
)
def test_what_is_raised_after_an_outage_brings_no_tombstone_back(raised: dict[str, str]) -> None:
    at, now = NOW - timedelta(days=3), {"positions": compaction_of(CONFIG | raised)}
    known = replace(last(at), cleaning={"positions": COMPACTED.cleaning})
    require_tombstones_kept(
        HOLES, TopicState(NOW, last(at), {}, configured=now).strict(), read_at(at), NOW
    )  # 0.2.0
    with pytest.raises(
        TombstonesLostError, match="keeps tombstones for 2 d, or did so at that time"
    ):
        require_tombstones_kept(
            HOLES, TopicState(NOW, known, {}, configured=now).strict(), read_at(at), NOW
        )


def test_what_is_lowered_counts_at_once() -> None:
    at = NOW - timedelta(days=1)
    known = replace(last(at), cleaning={"positions": COMPACTED.cleaning})
    lowered = compaction_of(CONFIG | {"min.compaction.lag.ms": "0", "delete.retention.ms": "0"})
    [found] = TopicState(NOW, known, {}, configured={"positions": lowered}).strict().values()
    assert found == lowered


def test_a_look_notes_what_is_in_force_and_with_open_transactions_the_stricter_since() -> None:
    strict, now = {"positions": COMPACTED}, {"positions": compaction_of({"cleanup.policy": ""})}
    found, state = Unread([], {}, {}, strict), TopicState(NOW, None, {}, configured=now)
    noted = state.noted(last(NOW), found, Rule("US")).cleaning
    assert noted == {"positions": Cleaning((), 0, DAY, 7 * DAY)}
    hidden = [OpenTransaction(Coordinates("positions", 0, 5), EARLIER)]
    noted = state.noted(last(NOW), replace(found, open_transactions=hidden), Rule("US")).cleaning
    assert noted == {"positions": Cleaning(("compact",), DAY, DAY, 7 * DAY)}


def test_after_a_look_at_an_unknown_time_no_retention_is_long_enough() -> None:
    forever = compaction_of(CONFIG | {"delete.retention.ms": str(2**63 - 1)})
    assert forever.may_have_lost(read_at(NEVER), NOW)
    assert not forever.may_have_lost(read_at(NEVER, NOW), NOW)


def test_uncertain_keys_are_refused_by_name_and_the_rest_counted() -> None:
    last = read_at(NOW - timedelta(days=3))
    require_certain({"positions": NamedKeys()}, last, NOW)
    many = NamedKeys(12, [f"k{n}" for n in range(11)])
    with pytest.raises(UncertainKeysError) as refused:
        require_certain({"positions": many, "clients": NamedKeys(1, ["a\nb"])}, last, NOW)
    assert refused.value.exit_code == NEEDS_ATTENTION
    said = str(refused.value)
    assert "a record: clients: 'a\\nb'; positions: k0, k1, k2, k3" in said
    assert "k9 and 2 more. The inputs were last read at 2026-11-20 12:00 UTC, 3 d ago" in said
    assert "nothing was changed. Write new records for these keys and compact again, or run" in said
