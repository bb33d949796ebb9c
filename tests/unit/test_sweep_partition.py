"""A sweep: of a partition, on Kafka in memory; its result, and what one that fails says."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from unittest import mock
from unittest.mock import Mock

import pytest

from shardpost.dead_letters import foreign_intake
from shardpost.dead_letters import sweep as module
from shardpost.dead_letters import sweep as sweep_job
from shardpost.dead_letters.foreign_intake import GROUP, MOST_NAMED, naming
from shardpost.dead_letters.model.retry_policy import Outcome, fingerprint
from shardpost.dead_letters.model.transition_records import ParkedGroup
from shardpost.dead_letters.sweep import PartitionReport
from shardpost.dead_letters.sweep_job import (
    GONE,
    NAMED,
    NOT_COUNTED,
    RECREATED,
    SEE_PARKED,
    Gap,
    Intake,
    as_json,
    for_a_person,
)
from shardpost.errors import COULD_NOT, NEEDS_ATTENTION, ShardpostError
from shardpost.kafka import offsets
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.at_step import dying
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    apply_topics_with_given_times,
    at,
    failed,
    header,
    live,
    milliseconds,
    original,
    produce,
    retries,
    seen,
    sweep,
    total,
)
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.memory_kafka.broker import broker_at


@dataclass
class Clock:
    """The broker's."""

    now: datetime = START


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bare(clock: Clock) -> Iterator[Settings]:
    """Give settings of a Kafka without topics."""
    given = {"partitions": 1, "retry_jitter": 0.0, "retry_attempts": 2, "retry_batch": 2}
    with memory_kafka(lambda: milliseconds(clock.now), **given) as kafka:
        yield kafka.settings


@pytest.fixture
def ready(bare: Settings) -> Settings:
    apply_topics(installed(bare))
    return bare


def test_a_letter_is_retried_once_an_attempt_and_then_parked(ready: Settings) -> None:
    produce(ready, failed(ready, original(0)))
    assert total(sweep(ready, at(59))) == {"waiting": 1}
    for attempt, when in ((1, at(60)), (2, at(300))):
        assert total(sweep(ready, when)) == {"retried": 1}
        assert total(sweep(ready, when)) == {}
        produce(ready, failed(ready, retries(ready)[-1], when=START))
        assert seen(ready).total() == attempt
    assert total(sweep(ready, at(9_999))) == {"parked": 1}
    [(key, parked)] = live(ready, ready.topic("parking-lot")).items()
    assert (key, parked.value) == (b"positions-0-0", b"v")
    assert header(parked, "parked-reason") == "exhausted: attempt 2 of 2 failed"
    assert header(parked, "error") == "ValueError: bad"
    assert live(ready, ready.topic("dead-letters")) == {}


@pytest.mark.parametrize("hours", [-8760, -1, 1, 8760])
def test_a_clock_of_a_consumer_that_is_wrong_makes_no_retry_early_or_late(
    ready: Settings, clock: Clock, hours: int
) -> None:
    wrong = timedelta(hours=hours)
    produce(ready, failed(ready, original(0), when=START + wrong))
    assert total(sweep(ready, at(59.999))) == {"waiting": 1}
    assert total(sweep(ready, at(60))) == {"retried": 1}
    clock.now = at(100)
    produce(ready, failed(ready, retries(ready)[-1], when=at(100) + wrong))
    assert total(sweep(ready, at(219.999))) == {"waiting": 1}
    assert total(sweep(ready, at(220))) == {"retried": 1}


def test_old_reports_on_top_of_a_letter_that_waits_do_not_put_it_off(
    ready: Settings, clock: Clock
) -> None:
    produce(ready, failed(ready, original(0)))
    sweep(ready, at(60))
    clock.now = at(100)
    produce(ready, failed(ready, retries(ready)[-1], when=START))
    for seconds in (120, 150, 180, 219):
        clock.now = at(seconds)
        produce(ready, failed(ready, original(0), when=at(seconds)))
        assert total(sweep(ready, at(seconds))) == {"waiting": 1}
    assert total(sweep(ready, at(220))) == {"retried": 1}


def test_a_letter_counts_from_its_failure_where_the_broker_does_not_stamp_it(
    bare: Settings,
) -> None:
    apply_topics_with_given_times(bare)
    produce(bare, failed(bare, original(0), when=at(-3600)))
    [report] = sweep(bare, START)
    assert report.counts == {Outcome.RETRY: 1}
    bare_store = broker_at(bare.bootstrap).topics[bare.topic("dead-letters")]
    bare_store.config = {**bare_store.config, "message.timestamp.type": "LogAppendTime"}
    produce(bare, failed(bare, original(1), when=at(-3600)))
    [report] = sweep(bare, START)
    assert report.counts == {Outcome.WAIT: 1}


def test_what_was_parked_is_counted_by_origin_and_error(ready: Settings) -> None:
    strict = ready.model_copy(update={"retry_fatal": "SchemaError,KeyError"})
    topics = ("positions", "positions", "clients")
    produce(
        strict,
        *(failed(strict, original(n, topic=t), f"KeyError: {n}") for n, t in enumerate(topics)),
    )
    produce(strict, failed(strict, original(8), "SchemaError: no"), failed(strict, original(9)))
    produce(strict, Outgoing(strict.topic("dead-letters"), b"junk", b"v", [], 0))
    [report] = sweep(strict, START)
    malformed = fingerprint("malformed: expected a header letter-id, found none")
    assert report.parked == {
        ParkedGroup("positions", fingerprint("KeyError: 1")): 2,
        ParkedGroup("clients", fingerprint("KeyError: 1")): 1,
        ParkedGroup("positions", fingerprint("SchemaError: no")): 1,
        ParkedGroup("", malformed): 1,
    }
    assert report.parked.total() == report.counts[Outcome.PARK] == 5
    assert sweep(strict, START)[0].parked == {}


def test_what_is_parked_for_its_size_is_counted_and_what_is_held_is_not(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    broker = broker_at(ready.bootstrap)
    for name, most in (("retries", "2000"), ("parking-lot", "9000")):
        topic = broker.topics[name]
        topic.config = {**topic.config, "max.message.bytes": most}
    values = (b"x" * 5_000, b"x" * 20_000, b"x")
    produce(
        ready, *(failed(ready, original(n, b"%d" % n, value)) for n, value in enumerate(values))
    )
    [report] = sweep(ready, at(60))
    assert total([report]) == {"parked": 1, "held": 1, "retried": 1}
    assert report.parked == {ParkedGroup("positions", fingerprint("ValueError: bad")): 1}
    assert "too large for the parking lot: 20000 bytes" in caplog.text
    assert total(sweep(ready, at(61))) == {"held": 1}


def test_a_sweep_that_is_fenced_amid_its_batches_leaves_the_rest_to_the_newer_one(
    ready: Settings,
) -> None:
    produce(ready, *(failed(ready, original(n, key=b"%d" % n)) for n in range(5)))
    newer: list[dict[str, int]] = []

    def overtake(name: str) -> None:
        if name == "committed" and not newer:
            newer.append({})
            newer[0] = total(sweep(ready, at(60)))

    with mock.patch.object(module, "step", overtake):
        [older] = sweep(ready, at(60))
    assert older.error is not None
    assert "fenced: a newer sweep has taken over" in older.error
    assert (older.counts[Outcome.RETRY], newer) == (2, [{"retried": 3}])
    assert sorted(seen(ready).values()) == [1] * 5


@pytest.mark.parametrize("step", ["fence", "read", "publish", "committed"])
def test_a_sweep_that_dies_is_finished_by_the_next(ready: Settings, step: str) -> None:
    produce(ready, *(failed(ready, original(n, key=b"%d" % n)) for n in range(5)))
    with dying(module, step), pytest.raises(KeyboardInterrupt):
        sweep(ready, at(60))
    assert total(sweep(ready, at(60)))["retried"] == (3 if step == "committed" else 5)
    assert sorted(seen(ready).values()) == [1] * 5
    assert live(ready, ready.topic("dead-letters")) == {}


PLACE = TopicPartition("orders.DLT", 3)
NONE: Counter[ParkedGroup] = Counter()


def test_what_went_well_needs_nobody() -> None:
    counts = Counter({Outcome.RETRY: 3, Outcome.WAIT: 2, Outcome.DROP: 1})
    result = as_json(counts, NONE, Intake(4))
    assert for_a_person(result) == []
    assert result == {
        "retried": 3,
        "parked": 0,
        "dropped": 1,
        "waiting": 2,
        "held": 0,
        "taken_in": 4,
        "parked_errors": [],
        "gaps": [],
        "not_read": [],
        "swept_again": [],
    }


def test_parked_letters_are_named_by_origin_and_error_the_most_first() -> None:
    parked = Counter({ParkedGroup("", "error-1"): 1, ParkedGroup("orders", "E-2"): 2})
    result = json.loads(json.dumps(as_json(Counter({Outcome.PARK: 3}), parked, Intake())))
    assert result["parked_errors"] == [
        {"origin": "orders", "error": "E-2", "letters": 2},
        {"origin": None, "error": "error-1", "letters": 1},
    ]
    assert for_a_person(result) == [
        f"parked: 2 of orders, E-2: {SEE_PARKED}",
        f"parked: 1 of no known origin, error-1: {SEE_PARKED}",
    ]


def test_of_very_many_errors_the_most_frequent_are_named() -> None:
    parked = Counter({ParkedGroup("orders", f"E-{n}"): n for n in range(1, 2 * NAMED)})
    result = as_json(Counter({Outcome.PARK: parked.total()}), parked, Intake())
    assert result["parked"] == parked.total()
    assert [one["letters"] for one in result["parked_errors"]] == [
        *range(2 * NAMED - 1, NAMED - 1, -1)
    ]


def test_held_letters_need_a_person() -> None:
    result = as_json(Counter({Outcome.HOLD: 5}), NONE, Intake())
    assert for_a_person(result) == ["held: 5, too large for the parking lot: see the log"]


def test_gaps_and_what_was_not_read_are_named_with_partition_and_offsets() -> None:
    gaps = (Gap(PLACE, 5, 9, GONE), Gap(PLACE, 12, None, RECREATED))
    intake = Intake(0, gaps, ("orders.DLT[1]: it has no leader",))
    result = json.loads(json.dumps(as_json(Counter(), NONE, intake)))
    assert result["gaps"][0] == {
        "topic": "orders.DLT",
        "partition": 3,
        "from": 5,
        "to": 9,
        "reason": GONE,
    }
    assert for_a_person(result) == [
        f"orders.DLT[3]: offsets 5 to 9: {GONE}",
        f"orders.DLT[3]: offsets 12 on: {RECREATED}",
        "not read: orders.DLT[1]: it has no leader",
    ]


def test_what_a_lost_sweep_of_a_partition_did_is_not_counted_and_that_is_said() -> None:
    result = as_json(Counter(), NONE, Intake(), ["dead-letters[1]"])
    assert for_a_person(result) == [f"dead-letters[1]: {NOT_COUNTED}"]


def test_the_name_of_an_origin_does_not_steer_a_terminal() -> None:
    parked = Counter({ParkedGroup("a\x1b[31m\nb", "E-1"): 1})
    [line] = for_a_person(as_json(Counter({Outcome.PARK: 1}), parked, Intake()))
    assert line.startswith("parked: 1 of a\ufffd[31m\ufffdb, E-1")


DLT = TopicPartition("orders.DLT", 0)
KAFKA = {"partitions": 1, "kafka_timeout": 1, "foreign_dead_letters": f"{DLT.topic},torn.DLT"}
GAP = f"{DLT}: offsets 1 to 2: {GONE}"


@pytest.fixture
def kafka(kafka: MemoryKafka) -> MemoryKafka:
    """Give a Kafka with a foreign topic that has lost two records unread."""
    for topic in (DLT.topic, "torn.DLT"):
        kafka.broker.create_topic(topic, 1, {})
    for _ in range(4):
        installed(kafka.settings).kafka.producer().produce(DLT.topic, b"v", b"k", 0)
    offsets.commit_offsets(installed(kafka.settings).kafka, GROUP, {DLT.topic: {0: 1}})
    kafka.broker.log(DLT).delete_before(3)
    return kafka


def error_of(kafka: MemoryKafka) -> ShardpostError:
    with pytest.raises(ShardpostError) as raised:
        sweep_job.sweep_dead_letters(installed(kafka.settings), START)
    return raised.value


def test_an_error_of_a_partition_names_gaps_and_parked_letters_too(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked = {ParkedGroup("orders", "E-1"): 2}
    report = PartitionReport(
        TopicPartition("dead-letters", 0),
        Counter({Outcome.PARK: 2}),
        "dead-letters[0]: fenced",
        Counter(parked),
    )
    monkeypatch.setattr(sweep_job, "_in_tasks", lambda *_: [report])
    error = error_of(kafka)
    assert str(error).startswith(f"dead-letters[0]: fenced; {GAP}; parked: 2 of orders, E-1: ")
    assert error.exit_code == NEEDS_ATTENTION


@pytest.mark.parametrize("stage", ["_in_tasks", "partitions_with_records"])
def test_whatever_fails_after_the_intake_names_its_gaps(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setattr(sweep_job, stage, Mock(side_effect=OSError("no space\nat all")))
    assert str(error_of(kafka)) == f"OSError: no space; {GAP}"


def test_an_intake_that_fails_names_the_gaps_of_the_partitions_before(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in = foreign_intake._take_in_partition

    def torn(run: foreign_intake._Run, source: TopicPartition) -> None:
        if source.topic == "torn.DLT":
            raise ShardpostError("torn.DLT[0]: fenced")
        take_in(run, source)

    monkeypatch.setattr(foreign_intake, "_take_in_partition", torn)
    assert str(error_of(kafka)) == f"torn.DLT[0]: fenced; {GAP}"


def test_an_error_of_a_sweep_that_found_nothing_stays_what_it_is() -> None:
    nothing = as_json(Counter(), Counter(), Intake(3))
    with pytest.raises(ShardpostError, match=r"^fenced$") as raised, naming(lambda: nothing):
        raise ShardpostError("fenced")
    assert raised.value.exit_code == COULD_NOT


def test_of_very_much_an_error_names_the_first_and_how_many_more() -> None:
    groups = {ParkedGroup("orders", f"E-{n}"): 1 for n in range(MOST_NAMED)}
    intake = Intake(0, (), ("orders.DLT[1]: it has no leader",))
    result = as_json(Counter(), Counter(groups), intake)
    with pytest.raises(ShardpostError) as raised, naming(lambda: result):
        raise ShardpostError("fenced")
    assert str(raised.value).startswith("fenced; not read: orders.DLT[1]: it has no leader; parked")
    assert str(raised.value).endswith("; and 1 more: see its log")
    assert str(raised.value).count("parked: ") == MOST_NAMED - 1
    assert raised.value.exit_code == COULD_NOT  # parked letters can be listed
