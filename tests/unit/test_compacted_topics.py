"""When Kafka may have deleted tombstones that were not read, and what is said then."""

from datetime import UTC, datetime, timedelta

import pytest

from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.model.compacted_topics import (
    Compaction,
    ReadTopic,
    TombstonesLostError,
    compaction_of,
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


def test_holes_after_longer_than_tombstones_are_kept_are_refused_by_name() -> None:
    looked_at = NOW - timedelta(days=45)
    with pytest.raises(TombstonesLostError) as refused:
        require_tombstones_kept(HOLES, {"positions": COMPACTED}, looked_at, NOW)
    assert refused.value.exit_code == NEEDS_ATTENTION
    said = str(refused.value)
    assert "positions has records at 250 of the 300 offsets after the last snapshot" in said
    assert "keeps tombstones for 2 days" in said
    assert "last read at 2026-10-09 12:00 UTC, 45 days ago" in said
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
    require_tombstones_kept([read], {"positions": compaction_of(config)}, NOW - age, NOW)


def test_each_topic_is_held_against_its_own_retention() -> None:
    short = compaction_of(CONFIG | {"min.compaction.lag.ms": "0", "delete.retention.ms": "1000"})
    read = [*HOLES, ReadTopic("clients", 9, 8)]
    compactions = {"positions": COMPACTED, "clients": short}
    with pytest.raises(TombstonesLostError) as refused:
        require_tombstones_kept(read, compactions, NOW - timedelta(minutes=1), NOW)
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
