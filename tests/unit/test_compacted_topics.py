"""When Kafka may have deleted tombstones that were not read, and what is said then."""

from datetime import UTC, datetime, timedelta

import pytest

from shardpost.delta.snapshot import NEVER
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.model.compacted_topics import (
    Compaction,
    LastLook,
    ReadTopic,
    TombstonesLostError,
    UncertainKeys,
    UncertainKeysError,
    compaction_of,
    require_certain,
    require_no_gaps,
    require_only_compacted,
    require_tombstones_kept,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAY = 86_400_000
CONFIG = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(DAY),
    "delete.retention.ms": str(DAY),
}
COMPACTED = compaction_of(CONFIG)
BOTH = compaction_of(CONFIG | {"cleanup.policy": "compact,delete"})
HOLES = [ReadTopic("positions", offsets=300, records=250)]


def read_at(at: datetime) -> LastLook:
    return LastLook(at, at)


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
        (ReadTopic("positions", 300, 300), timedelta(days=45), CONFIG),
        (ReadTopic("positions", 300, 250), timedelta(days=2), CONFIG),
        (ReadTopic("positions", 300, 250), timedelta(days=45), {"cleanup.policy": "delete"}),
        (
            ReadTopic("positions", 300, 250),
            timedelta(days=45),
            CONFIG | {"delete.retention.ms": str(2**63 - 1)},
        ),
    ],
)
def test_no_holes_or_a_recent_look_or_no_compaction_are_no_suspicion(
    read: ReadTopic, age: timedelta, config: dict[str, str | None]
) -> None:
    require_tombstones_kept([read], {"positions": compaction_of(config)}, read_at(NOW - age), NOW)


def test_each_topic_is_held_against_its_own_retention() -> None:
    short = compaction_of(CONFIG | {"min.compaction.lag.ms": "0", "delete.retention.ms": "1000"})
    read = [*HOLES, ReadTopic("clients", 9, 8)]
    compactions = {"positions": COMPACTED, "clients": short}
    with pytest.raises(TombstonesLostError) as refused:
        require_tombstones_kept(read, compactions, read_at(NOW - timedelta(minutes=1)), NOW)
    assert "clients has records at 8 of the 9 offsets" in str(refused.value)
    assert "keeps tombstones for 1 s" in str(refused.value)
    assert "positions" not in str(refused.value).split("Positions that")[0]


def test_a_topic_that_is_also_deleted_by_age_cannot_be_reconciled() -> None:
    compactions: dict[str, Compaction] = {"clients": COMPACTED, "positions": BOTH}
    with pytest.raises(ShardpostError, match=r"positions has cleanup.policy=compact,delete, so"):
        require_only_compacted(compactions)
    require_only_compacted({"clients": COMPACTED})


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
    assert not COMPACTED.may_have_lost(LastLook(long_ago, NOW - days), NOW)
    assert COMPACTED.may_have_lost(LastLook(long_ago, NOW - days - timedelta(seconds=1)), NOW)
    # What was read at once has the lag as well.
    assert not COMPACTED.may_have_lost(read_at(NOW - 2 * days), NOW)
    assert COMPACTED.may_have_lost(read_at(NOW - 2 * days - timedelta(seconds=1)), NOW)


def test_a_superseded_record_may_be_gone_after_the_lag_alone() -> None:
    day = timedelta(days=1)
    assert not COMPACTED.may_have_superseded(read_at(NOW - day), NOW)
    assert COMPACTED.may_have_superseded(read_at(NOW - day - timedelta(seconds=1)), NOW)
    # Behind an open transaction the lag may be over already.
    assert COMPACTED.may_have_superseded(LastLook(NOW - 2 * day, NOW), NOW)
    only_by_age = compaction_of(CONFIG | {"cleanup.policy": "delete"})
    assert not only_by_age.may_have_superseded(read_at(NEVER), NOW)


def test_a_look_at_an_unknown_time_is_too_old() -> None:
    with pytest.raises(TombstonesLostError, match="not known when the inputs were last read"):
        require_tombstones_kept(HOLES, {"positions": COMPACTED}, read_at(NEVER), NOW)


def test_uncertain_keys_are_refused_by_name_and_the_rest_counted() -> None:
    last = read_at(NOW - timedelta(days=3))
    require_certain({"positions": UncertainKeys()}, last, NOW)
    many = UncertainKeys(12, [f"k{n}" for n in range(11)])
    with pytest.raises(UncertainKeysError) as refused:
        require_certain({"positions": many, "clients": UncertainKeys(1, ["a\nb"])}, last, NOW)
    assert refused.value.exit_code == NEEDS_ATTENTION
    said = str(refused.value)
    assert "a record: clients: a\ufffdb; positions: k0, k1, k2, k3" in said
    assert "k9 and 2 more. The inputs were last read at 2026-11-20 12:00 UTC, 3 d ago" in said
    assert "nothing was changed. Write new records of these keys and compact again, or run" in said
