"""A compaction that stays: what it waits for, whom it leaves the inputs to, and how it ends.

Its turns commit snapshots without Spark; those with it are in tests/spark/test_following.py.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from shardpost import checkout
from shardpost.delta import snapshots
from shardpost.errors import COULD_NOT, ShardpostError
from shardpost.holders import following
from shardpost.holders.following import FollowerHeartbeat
from shardpost.holders.inputs import Inputs
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.lost_records import TombstonesLostError
from shardpost.holders.spark import follower
from shardpost.installation import Installation
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.records import TopicPartition
from shardpost.locks.locks import LockedError
from shardpost.spark.job import JobResult
from tests.support.committed_snapshot import SHARDS, compact
from tests.support.ended_process import ended_process
from tests.support.follower_turns import Turns, always_new, nothing
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

KAFKA = {"partitions": SHARDS}


def turns_of(kafka: MemoryKafka, *begins: Callable[[], object]) -> Turns:
    return Turns(lambda _, asked: compact(kafka, asked), kafka.settings, *begins)


def test_with_nothing_new_nothing_is_written_until_a_minute_is_over(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    asked = Inputs.other_ends

    def other_ends(inputs: Any, last: Any) -> dict[TopicPartition, int]:
        found = asked(inputs, last)
        looks.append(bool(found))
        if len(looks) == 3:
            installed(kafka.settings).kafka.producer().produce("positions", b"{}", b"1", 0)
        return found

    monkeypatch.setattr(Inputs, "other_ends", other_ends)
    turns = turns_of(kafka, nothing, nothing)
    turns.follow(monkeypatch, CompactionRequest())
    assert looks[:4] == [False, False, False, True]
    assert all(looks[4:])
    assert len(snapshots.list_all(installed(kafka.settings).tables)) == 2


def test_where_a_topic_ends_elsewhere_and_has_nothing_one_turn_looks(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()
    gone, more = ({TopicPartition("retries", 0): end} for end in (57, 58))
    monkeypatch.setattr(Inputs, "other_ends", lambda *_: gone if next(looks) < 5 else more)
    turns = turns_of(kafka, nothing, nothing, nothing)
    turns.follow(monkeypatch, CompactionRequest())
    # Two of each that a turn follows, whether more comes, and in between three that find no more.
    assert next(looks) == 2 + 3 + 2


def test_it_notes_the_snapshot_whose_holders_it_has_published(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = iter((1, 0))
    noted: list[int | None] = []

    def turn(_: Installation, asked: CompactionRequest) -> JobResult:
        code, document = compact(kafka, asked)
        return code, document | {"published": next(published)}

    def note() -> None:
        there = following.following(installed(kafka.settings).files, datetime.now(UTC))
        noted.append(there.published_in if there else None)

    monkeypatch.setattr(follower, "NOTED_EVERY", timedelta(0))
    code, document = Turns(turn, kafka.settings, note, note).follow(
        monkeypatch, CompactionRequest()
    )
    assert (code, noted) == (0, [None, 1])
    assert document["following"]["published_in"] == 1


def failing(error: Exception) -> Callable[[], object]:
    """Return what fails before a turn."""

    def fail() -> None:
        raise error

    return fail


def test_what_may_pass_is_waited_for_and_the_turn_is_as_it_was_asked(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(follower, "LONGEST_PAUSE", 0.01)
    silent = [failing(KafkaUnreachableError("silent")) for _ in range(2 * follower.MOST_FAILURES)]
    errors = [ShardpostError("fenced"), OSError("disk"), DeltaError("store"), PySparkException("x")]
    assert len(errors) == follower.MOST_FAILURES - 1
    turns = turns_of(kafka, *silent, *map(failing, errors), nothing)
    turns.follow(monkeypatch, CompactionRequest(take_over=True))
    assert all(asked.take_over for asked in turns.asked)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("waiting: silent") == said.count("step: turn") == 1
    assert sum(line.startswith("turn failed") for line in said) == len(errors)


def test_while_it_waits_it_says_that_it_is_there(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "SUCCESSOR_EVERY", 0.0)
    monkeypatch.setattr(follower, "NOTED_EVERY", timedelta(0))
    noted: list[datetime] = []

    def silent() -> None:
        there = following.following(installed(kafka.settings).files, datetime.now(UTC))
        assert there is not None
        noted.append(there.noted_at)
        raise KafkaUnreachableError("silent")

    turns = turns_of(kafka, nothing, *[silent] * 3)
    with pytest.raises(ShardpostError, match="could not compact: silent"):
        turns.follow(monkeypatch, CompactionRequest())
    assert len(set(noted)) == 3


ENDED = r"^following ended \(a stop was requested\); for 0 s it could not compact: "


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        ([nothing, KafkaUnreachableError("silent")], f"{ENDED}silent"),
        ([nothing, LockedError("another run has it")], f"{ENDED}another run has it"),
        ([nothing, ShardpostError("left to do"), ShardpostError("still")], f"{ENDED}still"),
        ([KafkaUnreachableError("silent")], f"{ENDED}silent"),
        ([ShardpostError("left to do")], f"{ENDED}left to do"),
    ],
)
def test_where_its_last_turn_failed_it_fails(
    begins: list[Any], said: str, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_new(monkeypatch)
    monkeypatch.setattr(follower, "LONGEST_PAUSE", 0.01)
    made = [one if callable(one) else failing(one) for one in begins]
    with pytest.raises(ShardpostError, match=said) as found:
        turns_of(kafka, *made).follow(monkeypatch, CompactionRequest())
    assert found.value.exit_code == COULD_NOT


def test_what_was_confirmed_holds_for_one_snapshot(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LONGEST_PAUSE", 0.01)

    def commit_and_fail() -> None:
        compact(kafka, CompactionRequest())
        raise ShardpostError("left to do: publishing")

    turns = turns_of(kafka, failing(ShardpostError("not yet")), commit_and_fail, nothing)
    asked = CompactionRequest(accept_drop=True, country_changed=True, take_over=True)
    turns.follow(monkeypatch, asked)
    assert turns.asked == [asked, asked, CompactionRequest(take_over=True)]


@pytest.mark.parametrize(
    ("error", "turns"),
    [(ShardpostError("again and again"), follower.MOST_FAILURES), (TombstonesLostError("lost"), 1)],
)
def test_what_does_not_pass_ends_it(
    error: ShardpostError, turns: int, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LONGEST_PAUSE", 0.01)
    made = turns_of(kafka, *(failing(error) for _ in range(turns + 1)))
    with pytest.raises(type(error), match=str(error)):
        made.follow(monkeypatch, CompactionRequest())
    assert len(made.asked) == turns
    assert following.following(installed(kafka.settings).files, datetime.now(UTC)) is None


def test_it_ends_when_its_time_is_over(kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = turns_of(kafka, nothing, nothing)
    code, document = turns.follow(monkeypatch, CompactionRequest(), until=datetime.now(UTC))
    assert (code, len(turns.asked)) == (0, 1)
    assert document["following"]["ended"] == "its time limit is reached"


def test_it_ends_when_the_code_has_changed(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_new(monkeypatch)
    monkeypatch.setattr(follower, "SUCCESSOR_EVERY", 0.0)
    turns = turns_of(kafka, nothing, nothing, nothing)
    monkeypatch.setattr(checkout, "code_stamp", lambda: len(turns.asked) // 2)
    code, document = turns.follow(monkeypatch, CompactionRequest())
    assert (code, len(turns.asked)) == (0, 2)
    assert document["following"]["ended"] == "the code or .env has changed"


def test_the_older_one_ends_when_a_younger_follows(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "SUCCESSOR_EVERY", 0.0)
    now = datetime.now(UTC)
    begun = following.begun(installed(kafka.settings).files, now)
    younger = replace(
        begun, run="other", holder="host, process 7", since=now + timedelta(seconds=30)
    )
    older = replace(younger, run="older", since=now - timedelta(days=1))
    silent = replace(younger, run="silent", noted_at=now - following.SILENT_AFTER)
    killed = replace(younger, run="killed", process=ended_process())

    def noted(other: FollowerHeartbeat) -> Callable[[], object]:
        return lambda: following.note(installed(kafka.settings).files, other)

    always_new(monkeypatch)
    turns = turns_of(kafka, noted(silent), noted(older), noted(killed), noted(younger), nothing)
    _, document = turns.follow(monkeypatch, CompactionRequest())
    assert len(turns.asked) == 4
    assert document["following"]["ended"].startswith("host, process 7 follows since ")
    assert following.following(installed(kafka.settings).files, datetime.now(UTC)) == younger
