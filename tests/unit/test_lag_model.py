"""When unread records are lost: by rules, and against logs that lose them."""

import pickle
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpost.commands.topics import lag_text
from shardpost.holders.rejected_letters import GROUP, group_of
from shardpost.holders.share_holders_topic import PUBLISH_GROUP
from shardpost.kafka.groups import find_groups
from shardpost.kafka.records import TopicPartition
from shardpost.lag.measure import NOTES
from shardpost.lag.model.partition import Partition, SeenRecord, Stretch, retention_of
from shardpost.lag.model.time_to_loss import LagRow, Position, assess, by_time_to_loss, unknown
from shardpost.wording import duration_text
from tests.support.how_far import up_to
from tests.support.simulated_log import RECORD_BYTES, SimulatedLog

NOW = 1_800_000_000_000
HOUR = 3_600_000
P = TopicPartition("orders", 3)
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * HOUR), "retention.bytes": "-1"}
COMPACT = {
    "cleanup.policy": "compact",
    "retention.ms": "1000",
    "min.compaction.lag.ms": str(HOUR),
    "delete.retention.ms": str(2 * HOUR),
}


def stretch(first: int, until: int, *records: tuple[int, int] | tuple[int, int, bool]) -> Stretch:
    """Give records as (offset, hours ago[, is it a tombstone])."""
    seen = [SeenRecord(one[0], NOW - one[1] * HOUR, one[2:] == (True,)) for one in records]
    return Stretch(first, until, tuple(seen))


def row(
    config: dict[str, str],
    *stretches: Stretch,
    committed: int | None = 10,
    low: int = 0,
    high: int = 20,
    size: int | None = None,
    growth: float | None = None,
    **more: int | bool,
) -> LagRow:
    stable = int(more.pop("stable", high))
    found = Partition(low, stable, high, retention_of(config), size, growth, stretches)
    position = Position("readers", P, committed, **more)  # type: ignore[arg-type]
    return assess(position, found, NOW)


def test_a_record_is_lost_when_its_own_time_and_the_retention_are_over() -> None:
    found = row(WEEK, stretch(10, 20, (12, 100), (13, 99)))
    assert found.records_behind == 2
    assert found.seconds_behind == 100 * 3600
    assert found.seconds_to_loss == 68 * 3600
    assert found.reason == (
        "loses data in 2 d 20 h unless it continues reading: retention.ms is 7 d in topic orders"
    )


def test_only_groups_that_we_name_are_notes_of_ours() -> None:
    tables = str(uuid.uuid4())
    assert all(map(NOTES.fullmatch, (PUBLISH_GROUP, group_of(tables))))
    others = (
        *("shardpost-publisher", "shardpost-publish-2", "my-shardpost-publish", GROUP),
        *(f"{GROUP}-", group_of("orders"), group_of(f"{tables}-2"), f"{PUBLISH_GROUP}\n"),
    )
    assert not any(map(NOTES.fullmatch, others))


def test_a_size_that_nobody_tells_is_not_taken_for_none() -> None:
    limited = WEEK | {"retention.ms": "-1", "retention.bytes": "1000"}
    found = row(limited, stretch(10, 20, (10, 1)), size=None)
    assert found.seconds_to_loss is None
    assert found.reason.startswith("not known: retention.bytes applies")


def test_markers_and_holes_are_no_records() -> None:
    found = row(WEEK, stretch(10, 20))
    assert (found.records_behind, found.seconds_behind, found.seconds_to_loss) == (0, 0, None)
    assert found.reason == "no unread records"


def test_a_reader_at_the_end_is_not_behind() -> None:
    found = row(WEEK, committed=20)
    assert (found.records_behind, found.seconds_behind, found.seconds_to_loss) == (0, 0, None)


def test_offsets_are_the_bound_where_not_all_was_read() -> None:
    found = row(WEEK, stretch(10, 12, (11, 5)))
    assert (found.records_behind, found.seconds_behind) == (10, 5 * 3600)


def test_a_record_before_the_reader_is_the_bound_where_its_next_was_not_read() -> None:
    found = row(WEEK, stretch(5, 8, (6, 40), (7, 30)))
    assert found.records_behind == 10
    assert found.seconds_behind == 30 * 3600
    assert found.seconds_to_loss == (7 * 24 - 30) * 3600
    assert "estimated from an earlier record," in found.reason


def test_what_could_not_be_read_is_said() -> None:
    found = row(WEEK)
    assert (found.records_behind, found.seconds_behind, found.seconds_to_loss) == (10, None, None)
    assert found.reason == "not known: the unread records could not be read"


BOTH = {"cleanup.policy": "compact,delete"}
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
OF_TWO = stretch(10, 20, (10, 2), (11, 1, True))


@pytest.mark.parametrize(
    ("found", "hours"),
    [
        # An earlier record that is newer keeps the segment, unless compaction removes it.
        (row(WEEK, stretch(8, 20, (9, 1), (10, 100))), 7 * 24 - 1),
        (row(WEEK | BOTH, stretch(8, 20, (9, 1), (10, 100))), 68),
        # The deleted marker at the end of an idle topic was no loss.
        (row(WEEK, committed=19, low=20), None),
        (row(WEEK, committed=18, low=20), 0),
        # What an earlier look found empty is not lost.
        (row(WEEK, stretch(15, 20, (15, 1)), low=15, clear_until=15), 7 * 24 - 1),
        # A recreated topic is a loss wherever the offset is.
        (row(WEEK, stretch(10, 20, (10, 1)), was_recreated=True), 0),
        # The oldest tombstone counts, and not the next.
        (row(COMPACT, stretch(10, 20, (10, 1, True), (11, 2, True))), 1),
        # Of compaction and deletion the sooner one counts.
        (row(COMPACT | BOTH | {"retention.ms": str(4 * HOUR)}, OF_TWO), 2),
        (row(COMPACT | BOTH | {"retention.ms": str(3 * HOUR)}, OF_TWO), 1),
        (row(FOR_EVER | {"cleanup.policy": "delete"}, stretch(10, 20, (10, 9999))), None),
        (row(FOR_EVER | {"cleanup.policy": ""}, stretch(10, 20, (10, 9999))), None),
    ],
)
def test_hours_to_the_loss(found: LagRow, hours: int | None) -> None:
    assert found.seconds_to_loss == (None if hours is None else hours * 3600)


def test_a_record_of_long_ago_may_go_at_once() -> None:
    found = row(WEEK, stretch(10, 20, (10, 24 * 365)))
    assert found.seconds_to_loss == 0
    assert "at any moment" in found.reason


def test_nonsense_timestamps_break_nothing() -> None:
    without = Stretch(10, 20, (SeenRecord(10, -1, False),))
    assert (row(WEEK, without).seconds_to_loss, row(WEEK, without).seconds_behind) == (0, None)
    future = Stretch(10, 20, (SeenRecord(10, 2**63 - 1, False),))
    assert (row(WEEK, future).seconds_behind, row(WEEK, future).seconds_to_loss is None) == (
        0,
        False,
    )


def test_what_was_deleted_before_it_was_read_is_lost() -> None:
    found = row(WEEK, stretch(15, 20, (15, 1)), low=15)
    assert found.seconds_to_loss == 0
    assert found.reason.startswith("has lost data: offsets 10 to 14 (5) were deleted")


def test_an_offset_beyond_the_end_is_of_another_topic() -> None:
    found = row(WEEK, stretch(0, 20, (0, 1)), committed=30)
    assert (found.records_behind, found.seconds_to_loss) == (1, 0)
    assert found.reason.startswith("the committed offset 30 is beyond the end 20")


def test_a_group_without_a_commit_has_no_numbers() -> None:
    found = row(WEEK, committed=None)
    assert (found.committed, found.end, found.records_behind) == (None, 20, None)
    assert found.seconds_to_loss is None
    assert "auto.offset.reset" in found.reason


def test_of_a_compacted_topic_only_tombstones_are_lost() -> None:
    values = row(COMPACT, stretch(10, 20, (10, 100), (11, 99)))
    assert (values.records_behind, values.seconds_to_loss) == (2, None)
    closed = row(COMPACT, stretch(10, 20, (10, 100), (11, 1, True)))
    assert closed.seconds_to_loss == 2 * 3600
    assert "unread tombstone at offset 11" in closed.reason


def test_of_what_was_not_read_anything_may_be_a_tombstone() -> None:
    found = row(COMPACT, stretch(10, 12, (10, 1), (11, 0)))
    assert found.seconds_to_loss == 2 * 3600
    assert "an unread tombstone from offset 12" in found.reason


def test_size_is_reached_at_the_present_rate() -> None:
    limited = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "10000"}
    unread = stretch(10, 20, (10, 1))
    grows = row(limited, unread, size=2000, growth=2.0)
    assert grows.seconds_to_loss == (10_000 - 1000) / (2 * 100)
    assert row(limited, unread, size=2000, growth=0.0).seconds_to_loss is None
    assert row(limited, unread, size=20_000, growth=0.0).seconds_to_loss == 0


def test_the_offsets_of_a_group_expire() -> None:
    found = row(WEEK, stretch(10, 20, (10, 1)), expires_ms=NOW + 2 * HOUR)
    assert found.seconds_to_loss == 2 * 3600
    assert found.reason.startswith("its offsets can expire in 2 h unless it commits")
    sooner = row(WEEK, stretch(10, 20, (10, 167)), expires_ms=NOW + 2 * HOUR)
    assert sooner.seconds_to_loss == 3600
    assert sooner.reason.startswith("loses data in 1 h")


def test_an_open_transaction_is_named_where_it_stops_a_reader() -> None:
    found = row(WEEK, stretch(10, 20, (10, 2)), stable=10)
    assert found.records_behind == 1
    assert "an open transaction since offset 10" in found.reason
    assert "open transaction" not in row(WEEK, stretch(10, 20, (10, 2)), stable=11).reason


def test_a_partition_that_nobody_answers_for_is_said() -> None:
    found = unknown(Position("readers", P, 3), "no leader")
    assert vars(found) == {
        "group": "readers",
        "topic": "orders",
        "partition": 3,
        "committed": 3,
        "end": None,
        "records_behind": None,
        "seconds_behind": None,
        "seconds_to_loss": None,
        "reason": "no leader",
    }


def test_what_is_lost_first_comes_first() -> None:
    rows = [LagRow("g", "t", n, 0, 0, 0, 0, s, "") for n, s in enumerate([None, 5.0, 0.0])]
    assert [one.partition for one in sorted(rows, key=by_time_to_loss)] == [2, 1, 0]


def test_spans_have_two_units() -> None:
    spans = {0.9: "0 s", 61: "1 min 1 s", 11_400: "3 h 10 min", 86_400: "1 d", 90_061: "1 d 1 h"}
    assert {seconds: duration_text(seconds) for seconds in spans} == spans


@dataclass(frozen=True)
class Plan:
    """One history: what happens in each step of a second, when it is looked at, and how."""

    policy: str
    steps: Sequence[tuple[int, int, bool, bool]]  # key, jitter, tombstone, housekeeping
    looked_at: int
    committed: float
    read: int
    rate: int
    marks: bool

    @property
    def now(self) -> int:
        """When it is looked at: right after the last step, since growth comes in lumps."""
        return 1000 * (self.looked_at - 1)


PLANS = st.builds(
    Plan,
    policy=st.sampled_from(["time", "size", "compact", "both"]),
    steps=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.booleans(), st.booleans()),
        min_size=60,
        max_size=100,
    ),
    looked_at=st.integers(5, 30),
    committed=st.floats(0, 1),
    read=st.integers(0, 60),
    rate=st.integers(1, 3),
    marks=st.booleans(),
)


def new_log(policy: str) -> tuple[SimulatedLog, dict[str, str]]:
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    log = SimulatedLog(segment_ms=4000, segment_bytes=5 * RECORD_BYTES)
    if policy in {"time", "both"}:
        log.time_ms = 15_000
        config["retention.ms"] = "15000"
    if policy == "size":
        log.limit = 20 * RECORD_BYTES
        config["retention.bytes"] = str(log.limit)
    if policy in {"compact", "both"}:
        log.is_compacted, log.lag_ms, log.tombstones_ms = True, 3000, 5000
        config |= {"min.compaction.lag.ms": "3000", "delete.retention.ms": "5000"}
        config["cleanup.policy"] = "compact,delete" if policy == "both" else "compact"
    return log, config


def advance(log: SimulatedLog, plan: Plan, step: int) -> None:
    key, jitter, tombstone, is_time_for_it = plan.steps[step]
    now = step * 1000
    for _ in range(plan.rate):
        # Out of order only where all that is unread is read: what was not is a bound otherwise.
        late = 1000 * jitter if plan.read >= 60 and plan.policy != "size" else 0
        log.append(now, max(0, now - late), key, tombstone=tombstone)
    if plan.marks and plan.policy != "size":
        log.marker()
    if is_time_for_it:
        log.clean(now)
        log.delete(now)


def look_at(log: SimulatedLog, plan: Plan, config: dict[str, str]) -> tuple[int, LagRow]:
    committed = int(plan.committed * log.high)
    start = max(log.low, committed)
    seen = [
        SeenRecord(one.offset, one.timestamp, one.is_tombstone)
        for one in log.records
        if one.offset >= start
    ][: plan.read if plan.read < 60 else None]
    is_whole = plan.read >= 60
    until = log.high if is_whole or not seen else seen[-1].offset + 1
    size = log.size if plan.policy == "size" else None
    rate = float(plan.rate) if plan.policy == "size" else None
    read = [] if not seen and not is_whole else [Stretch(start, until, tuple(seen))]
    found = Partition(log.low, log.high, log.high, retention_of(config), size, rate, tuple(read))
    return start, assess(Position("g", P, committed), found, plan.now)


@settings(max_examples=up_to(200, quick=60))
@given(PLANS)
def test_the_warning_is_never_later_than_the_loss(plan: Plan) -> None:
    log, config = new_log(plan.policy)
    for step in range(plan.looked_at):
        advance(log, plan, step)
    start, row = look_at(log, plan, config)
    if row.reason.startswith("not known"):
        return
    unread = [one for one in log.records if one.offset >= start]
    for step in range(plan.looked_at, len(plan.steps)):
        advance(log, plan, step)
        gone = log.deleted | log.expired
        if lost := [one for one in unread if gone.get(one.offset) == step * 1000]:
            assert row.seconds_to_loss is not None, (row, lost)
            assert plan.now + 1000 * row.seconds_to_loss <= step * 1000, (row, lost)
            return


SEGMENT_SECONDS = 5


@pytest.mark.parametrize("policy", ["time", "size", "compact"])
@pytest.mark.parametrize("looked_at", range(5, 30))
def test_where_kafka_is_quick_the_loss_follows_within_a_segment(
    policy: str, looked_at: int
) -> None:
    steps = [(key, 0, True, True) for key in range(80)]
    plan = Plan(policy, steps, looked_at, committed=0.999, read=60, rate=1, marks=False)
    log, config = new_log(policy)
    for step in range(looked_at):
        advance(log, plan, step)
    start, row = look_at(log, plan, config)
    for step in range(looked_at, len(steps)):
        advance(log, plan, step)
        if start in log.deleted or start in log.expired:
            break
    assert row.seconds_to_loss is not None
    late = step - (plan.now / 1000 + row.seconds_to_loss)
    assert 0 <= late <= SEGMENT_SECONDS + 2


def in_group(group: str, loss: float | None = None, **more: int | None) -> LagRow:
    end, behind = more.get("end", 20), more.get("behind", 0)
    return LagRow(group, "orders", 3, 10, end, behind, 60.0 * (behind or 0), loss, "because")


ROWS = [
    in_group("billing", 0, behind=5),
    in_group("weekly", 3600, behind=1),
    in_group("shardpost-intake", 3600),
    in_group("weekly", 7200),
    in_group("later", 100_000, behind=2),
    in_group("asked", end=None, behind=None),
    in_group("shardpost-compaction"),
    in_group("shardpost-letters-table"),
    in_group("shardpost-consumer"),  # of somebody who named it like that
    LagRow("begun", "orders", 1, None, 20, None, None, None, "has committed no offset"),
    LagRow("begun", "orders", 2, 10, 20, 7, 60.0, None, "nothing unread can be lost"),
    LagRow("never", "orders", 1, None, 20, None, None, None, "has committed no offset"),
    LagRow("idle", "orders", 1, None, 0, None, None, None, "has committed no offset"),
]


def group_lines(**more: bool) -> list[str]:
    given = {"with_own": False, "with_partitions": False} | more
    text = lag_text(sorted(ROWS, key=by_time_to_loss), 43_200, **given)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_groups_of_people_come_first_a_line_each_and_what_is_lost_before_all() -> None:
    assert group_lines() == [
        "state group partitions records time behind time to loss why",
        "LOSS billing 1 5 5 min 0 s orders[3]: because",
        "WARN asked 1 ? ? ? orders[3]: because",
        "WARN weekly 2 1 1 min 1 h orders[3]: because",
        "? begun 2 ≥ 7 ≥ 1 min ? orders[1]: has committed no offset",
        "? never 1 ? ? ? orders[1]: has committed no offset",
        "OK idle 1 0 0 s",
        "OK later 1 2 2 min 1 d 3 h orders[3]: because",
        "OK shardpost-consumer 1 0 0 s",
        "WARN shardpost-intake 1 0 0 s 1 h orders[3]: because",
        "2 groups of Shardpost's own: OK (--all lists them)",
    ]


def test_all_groups_are_listed_on_demand_and_partitions_of_those_that_are_named() -> None:
    every = group_lines(with_own=True)
    assert every[-3:] == [
        "WARN shardpost-intake 1 0 0 s 1 h orders[3]: because",
        "OK shardpost-compaction 1 0 0 s",
        "OK shardpost-letters-table 1 0 0 s",
    ]
    partitions = group_lines(with_partitions=True)[11:]
    assert partitions[0] == "time to loss group partition records time behind reason"
    assert partitions[1:3] == [
        "0 s billing orders[3] 5 5 min because",
        "1 h shardpost-intake orders[3] 0 0 s because",
    ]
    assert len(partitions) == 9
    assert partitions[-1] == "? never orders[1] ? ? has committed no offset"


def done(value: object) -> "Future[Any]":
    found: Future[Any] = Future()
    found.set_result(value)
    return found


class ClientOfManyKinds:
    """Answers as librdkafka does of a broker that has groups of many protocols."""

    def list_topics(self, timeout: float) -> Any:
        del timeout
        home = SimpleNamespace(partitions={0: None}, error=None)
        return SimpleNamespace(topics={"__consumer_offsets": home})

    def describe_consumer_groups(self, names: list[str], request_timeout: float) -> Any:
        del request_timeout
        return {name: done(SimpleNamespace(members=[])) for name in names}

    def list_consumer_groups(self, request_timeout: float) -> Any:
        del request_timeout
        mine = SimpleNamespace(group_id="mine", state=ConsumerGroupState.EMPTY)
        return done(SimpleNamespace(valid=[mine], errors=[]))

    def list_groups(self, timeout: float) -> Any:
        del timeout
        kinds = {"mine": "consumer", "app": "", "queue": "", "sink": "connect"}
        return [SimpleNamespace(id=name, protocol_type=kind) for name, kind in kinds.items()]

    def list_consumer_group_offsets(self, asked: list[Any], request_timeout: float) -> Any:
        del request_timeout
        [name] = [one.group_id for one in asked]
        committed = [confluent_kafka.TopicPartition("in", 0, 8)] if name in {"mine", "app"} else []
        return {name: done(SimpleNamespace(topic_partitions=committed))}


def test_groups_of_other_kinds_are_named_with_their_kind_and_measured_if_they_commit() -> None:
    found = find_groups(cast("Any", ClientOfManyKinds()), (), 1)
    assert [(group.name, group.committed) for group in found.groups] == [
        ("app", {TopicPartition("in", 0): 8}),
        ("mine", {TopicPartition("in", 0): 8}),
    ]
    assert found.others == ["app (streams)", "queue (share or streams)", "sink (connect)"]
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - its own
