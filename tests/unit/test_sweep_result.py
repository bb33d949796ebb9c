"""The result of a sweep, what of it needs a person, and what one that fails says."""

import json
from collections import Counter
from unittest.mock import Mock

import pytest

from shardpost.dead_letters import foreign_intake, sweep
from shardpost.dead_letters.foreign_intake import GROUP, MOST_NAMED, naming
from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.sweep_result import (
    GONE,
    NAMED,
    RECREATED,
    SEE_PARKED,
    Gap,
    Intake,
    ParkedGroup,
    as_json,
    for_a_person,
)
from shardpost.dead_letters.sweep_partition import PartitionReport
from shardpost.errors import COULD_NOT, NEEDS_ATTENTION, ShardpostError
from shardpost.kafka import offsets
from shardpost.kafka.clients import producer
from shardpost.kafka.coordinates import TopicPartition
from tests.support.letter_world import START
from tests.support.memory_kafka import MemoryKafka

PLACE = TopicPartition("orders.DLT", 3)
NONE: Counter[ParkedGroup] = Counter()


def test_what_went_well_needs_nobody() -> None:
    counts = Counter({Outcome.RETRY: 3, Outcome.WAIT: 2, Outcome.DROP: 1})
    result = as_json(counts, NONE, [], Intake(4))
    assert for_a_person(result) == []
    assert result == {
        "retried": 3,
        "parked": 0,
        "dropped": 1,
        "waiting": 2,
        "held": 0,
        "taken_in": 4,
        "held_errors": [],
        "parked_errors": [],
        "gaps": [],
        "not_read": [],
    }


def test_parked_letters_are_named_by_origin_and_error_the_most_first() -> None:
    parked = Counter({ParkedGroup("", "error-1"): 1, ParkedGroup("orders", "E-2"): 2})
    result = json.loads(json.dumps(as_json(Counter({Outcome.PARK: 3}), parked, [], Intake())))
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
    result = as_json(Counter({Outcome.PARK: parked.total()}), parked, [], Intake())
    assert result["parked"] == parked.total()
    assert [one["letters"] for one in result["parked_errors"]] == [
        *range(2 * NAMED - 1, NAMED - 1, -1)
    ]


def test_held_letters_need_a_person_whether_of_one_error_or_too_large() -> None:
    for errors, why in (
        (["E-1"], "too many due letters of one error: E-1"),
        ([], "the log says why"),
    ):
        result = as_json(Counter({Outcome.HOLD: 5}), NONE, errors, Intake())
        assert for_a_person(result) == [f"held: 5, {why}"]


def test_gaps_and_what_was_not_read_are_named_with_partition_and_offsets() -> None:
    gaps = (Gap(PLACE, 5, 9, GONE), Gap(PLACE, 12, None, RECREATED))
    intake = Intake(0, gaps, ("orders.DLT[1]: it has no leader",))
    result = json.loads(json.dumps(as_json(Counter(), NONE, [], intake)))
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


def test_the_name_of_an_origin_does_not_steer_a_terminal() -> None:
    parked = Counter({ParkedGroup("a\x1b[31m\nb", "E-1"): 1})
    [line] = for_a_person(as_json(Counter({Outcome.PARK: 1}), parked, [], Intake()))
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
        producer(kafka.settings).produce(DLT.topic, b"v", b"k", 0)
    offsets.commit_offsets(kafka.settings, GROUP, {DLT.topic: {0: 1}})
    kafka.broker.log(DLT).delete_before(3)
    return kafka


def failed(kafka: MemoryKafka) -> ShardpostError:
    with pytest.raises(ShardpostError) as raised:
        sweep.sweep_dead_letters(kafka.settings, START)
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
    monkeypatch.setattr(sweep, "_in_tasks", lambda *_: [report])
    error = failed(kafka)
    assert str(error).startswith(f"dead-letters[0]: fenced; {GAP}; parked: 2 of orders, E-1: ")
    assert error.exit_code == NEEDS_ATTENTION


@pytest.mark.parametrize("stage", ["_in_tasks", "partitions_with_records"])
def test_whatever_fails_after_the_intake_names_its_gaps(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setattr(sweep, stage, Mock(side_effect=OSError("no space\nat all")))
    assert str(failed(kafka)) == f"OSError: no space; {GAP}"


def test_an_intake_that_fails_names_the_gaps_of_the_partitions_before(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in = foreign_intake._take_in_partition

    def torn(run: foreign_intake._Run, source: TopicPartition) -> None:
        if source.topic == "torn.DLT":
            raise ShardpostError("torn.DLT[0]: fenced")
        take_in(run, source)

    monkeypatch.setattr(foreign_intake, "_take_in_partition", torn)
    assert str(failed(kafka)) == f"torn.DLT[0]: fenced; {GAP}"


def test_an_error_of_a_sweep_that_found_nothing_stays_what_it_is() -> None:
    nothing = as_json(Counter(), Counter(), (), Intake(3))
    with pytest.raises(ShardpostError, match=r"^fenced$") as raised, naming(lambda: nothing):
        raise ShardpostError("fenced")
    assert raised.value.exit_code == COULD_NOT


def test_of_very_much_an_error_names_the_first_and_how_many_more() -> None:
    groups = {ParkedGroup("orders", f"E-{n}"): 1 for n in range(MOST_NAMED)}
    intake = Intake(0, (), ("orders.DLT[1]: it has no leader",))
    result = as_json(Counter(), Counter(groups), (), intake)
    with pytest.raises(ShardpostError) as raised, naming(lambda: result):
        raise ShardpostError("fenced")
    assert str(raised.value).startswith("fenced; not read: orders.DLT[1]: it has no leader; parked")
    assert str(raised.value).endswith("; and 1 more: see its log")
    assert str(raised.value).count("parked: ") == MOST_NAMED - 1
    assert raised.value.exit_code == COULD_NOT  # parked letters can be listed
