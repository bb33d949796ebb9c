"""A sweep that fails still says what it found: no later one finds it again."""

from collections import Counter
from unittest.mock import Mock

import pytest

from shardpost.dead_letters import foreign_intake, sweep
from shardpost.dead_letters.foreign_intake import GROUP, MOST_NAMED, naming
from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.sweep_result import GONE, Intake, ParkedGroup, as_json
from shardpost.dead_letters.sweep_partition import PartitionReport
from shardpost.errors import COULD_NOT, NEEDS_ATTENTION, ShardpostError
from shardpost.kafka import offsets
from shardpost.kafka.clients import producer
from shardpost.kafka.coordinates import TopicPartition
from tests.support.letter_world import START
from tests.support.memory_kafka import MemoryKafka

DLT = TopicPartition("orders.DLT", 0)
KAFKA = {"partitions": 1, "kafka_timeout": 1, "foreign_dead_letters": f"{DLT.topic},torn.DLT"}
GAP = f"{DLT}: offsets 1 to 2: {GONE}"


@pytest.fixture(autouse=True)
def _gap(kafka: MemoryKafka) -> None:
    """Have a foreign topic that has lost two records unread."""
    for topic in (DLT.topic, "torn.DLT"):
        kafka.broker.create_topic(topic, 1, {})
    for _ in range(4):
        producer(kafka.settings).produce(DLT.topic, b"v", b"k", 0)
    offsets.commit_offsets(kafka.settings, GROUP, {DLT.topic: {0: 1}})
    kafka.broker.log(DLT).delete_before(3)


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
