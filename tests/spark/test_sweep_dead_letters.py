"""The sweep as a job: its table, and real processes that are killed, halted, and started twice."""

import os
import re
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.foreign_intake import GROUP
from shardpost.dead_letters.letters_table import life
from shardpost.dead_letters.listed_letters import current_letters
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, LetterState
from shardpost.dead_letters.model.letter_history import Step
from shardpost.dead_letters.removal import remove_old
from shardpost.dead_letters.sweep import sweep_dead_letters
from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS, for_a_person
from shardpost.delta import parquet_files, table_log
from shardpost.delta.query import rows
from shardpost.delta.storage import newest_version
from shardpost.errors import ShardpostError
from shardpost.kafka import offsets
from shardpost.kafka.records import Outgoing
from shardpost.locks import locks
from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.spark.delta_files import read
from shardpost.topics.creation import apply_topics
from tests.support.command_line import SHARDPOST
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.job_process import kill_at, paused, wait_for
from tests.support.letter_world import (
    apply_topics_with_given_times,
    at,
    committed,
    failed,
    live,
    original,
    put,
    retries,
    seen,
)

pytestmark = pytest.mark.usefixtures("spark")  # what is not killed runs in this process

STEPS = ["intake", "fence", "read", "publish", "committed", "table"]
COUNT = 300


@pytest.fixture
def ready(settings: Settings) -> Settings:
    made = settings.model_copy(
        update={"partitions": 2, "retry_jitter": 0.0, "retry_batch": 20, "kafka_timeout": 20.0}
    )
    apply_topics_with_given_times(made)
    return made


def run(settings: Settings, seconds: float | None = None) -> dict[str, Any]:
    """Sweep in this process, so many seconds after START or now; return what is not zero."""
    now = None if seconds is None else at(seconds)
    code, result = sweep_dead_letters(installed(settings), now or datetime.now(UTC))
    assert code == (3 if for_a_person(result) else 0)
    assert result["parked"] == sum(group["letters"] for group in result.pop("parked_errors"))
    topics = {settings.topic("dead-letters"), settings.topic("parking-lot")}
    assert {*result.pop("end_offsets")} == topics
    return {name: count for name, count in result.items() if count}


def states(settings: Settings) -> Counter[str]:
    return Counter(str(step.state) for step in current_letters(installed(settings)).values())


def of_table(settings: Settings) -> list[tuple[str, str, int]]:
    found = rows(
        installed(settings).tables,
        "SELECT id, state, attempt FROM dead_letters ORDER BY id, attempt, state DESC",
        {DEAD_LETTERS: None},
    )
    return [(row["id"], row["state"], row["attempt"]) for row in found]


def test_the_table_has_the_life_of_each_letter(ready: Settings, spark: SparkSession) -> None:
    once = ready.model_copy(update={"retry_attempts": 1})
    put(once, [failed(once, original(1))])
    assert states(once) == {"waiting": 1}
    assert run(once, 0) == {"waiting": 1}
    assert run(once, 60) == {"retried": 1}
    [retry] = retries(once)
    put(once, [failed(once, retry, when=at(70))])
    assert states(once) == {"waiting": 1}
    assert run(once, 80) == {"parked": 1}
    assert of_table(once) == [
        ("positions-0-1", "waiting", 0),
        ("positions-0-1", "retried", 0),
        ("positions-0-1", "waiting", 1),
        ("positions-0-1", "parked", 1),
    ]
    steps = [(str(step.state), step.attempt) for step in life(installed(once), "positions-0-1")]
    assert steps == [("waiting", 0), ("retried", 0), ("waiting", 1), ("parked", 1)]
    [step] = current_letters(installed(once)).values()
    assert (step.origin_topic, step.error) == ("positions", "ValueError: bad")
    version = newest_version(installed(once).tables, DEAD_LETTERS) or 0
    assert read(spark, installed(once).tables, DEAD_LETTERS, version).count() == 4


def test_old_letters_leave_the_table_while_spark_appends_to_it(
    ready: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters_table, "FEW_OFFSETS", 0)
    put(ready, [failed(ready, original(number)) for number in range(3)])
    assert run(ready, 0) == {"waiting": 3}
    ancient = datetime(2020, 1, 1, tzinfo=UTC)
    life_of_one = [
        Step("orders-0-1", LetterState.WAITING, 0, ancient, "dead-letters", 0, 1),
        Step("orders-0-1", LetterState.RETRIED, 0, ancient, "dead-letters", 0, 2),
    ]
    made = letters_table.as_rows(life_of_one)
    file = parquet_files.write(
        installed(ready).tables, DEAD_LETTERS, made, "00000000-ancient/steps.parquet"
    )
    version = newest_version(installed(ready).tables, DEAD_LETTERS) or 0
    table_log.commit(installed(ready).tables, DEAD_LETTERS, version, [file])
    assert states(ready) == {"waiting": 3, "retried": 1}
    put(ready, [failed(ready, original(number)) for number in (3, 4)])
    merged, removed = parquet_files.merge_small, []
    # Of the years without a step 35 days count (decision 0012).
    strict = ready.model_copy(update={"letter_days": 30})

    def beside(*arguments: Any) -> Any:
        removed.append(remove_old(installed(strict), datetime.now(UTC)).letters)
        return merged(*arguments)

    monkeypatch.setattr(parquet_files, "merge_small", beside)
    assert run(ready, 0) == {"waiting": 5}
    assert removed == [1, 0]  # the sweep was second, and appended once more
    assert states(ready) == {"waiting": 5}
    version = newest_version(installed(ready).tables, DEAD_LETTERS) or 0
    assert read(spark, installed(ready).tables, DEAD_LETTERS, version).count() == 5


def test_a_sweep_that_parks_and_one_that_finds_a_gap_end_with_three(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = f"{ready.topic('clients')}-dlq"
    strict = ready.model_copy(
        update={"retry_fatal": "KeyError", "foreign_dead_letters": f"{foreign},{foreign}.none"}
    )
    put(strict, [failed(strict, original(n, b"k%d" % n), f"KeyError: {n}") for n in range(3)])
    code, result = sweep_dead_letters(installed(strict), at(0))
    [group] = result["parked_errors"]
    assert (code, result["parked"], group["origin"], group["letters"]) == (3, 3, "positions", 3)
    assert f"parked: 3 of positions, {group['error']}" in caplog.text
    code, result = sweep_dead_letters(installed(strict), at(0))
    assert (code, result["parked"], result["parked_errors"]) == (0, 0, [])

    client = installed(strict).kafka.admin()
    client.create_topics([NewTopic(foreign, 1, 1)])[foreign].result(30)
    others = {"topic": foreign, "key": b"k", "value": b"v", "headers": [], "partition": 0}
    put(strict, [Outgoing(**others)] * 4)  # type: ignore[arg-type]
    offsets.commit_offsets(installed(strict).kafka, GROUP, {foreign: {0: 1}})
    client.delete_records([TopicPartition(foreign, 0, 3)])
    wait_for(lambda: low_of(strict, foreign) == 3, "the deletion")
    code, result = sweep_dead_letters(installed(strict), at(0))
    [gap] = result["gaps"]
    assert (code, result["taken_in"], gap["from"], gap["to"]) == (3, 1, 1, 2)
    assert f"{foreign}[0]: offsets 1 to 2: deleted by Kafka before they were read" in caplog.text


def low_of(settings: Settings, topic: str) -> int:
    return offsets.watermarks(installed(settings).kafka, {topic: 1}, committed=True)[topic][0][0]


def test_the_table_has_the_times_of_the_broker_however_many_letters_there_are(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read here and in tasks of Spark: a clock that is a day slow makes no letter due."""
    stamped = settings.model_copy(update={"partitions": 1, "retry_jitter": 0.0})
    apply_topics(installed(stamped))
    for number, few in enumerate((letters_table.FEW_OFFSETS, 0)):
        monkeypatch.setattr(letters_table, "FEW_OFFSETS", few)
        since = datetime.now(UTC)
        slow = since - timedelta(days=1)
        put(stamped, [failed(stamped, original(number), when=slow)])
        assert run(stamped) == {"waiting": number + 1}
        [step] = life(installed(stamped), f"positions-0-{number}")
        assert step.at >= since.replace(microsecond=0)
        assert step.due == step.at + timedelta(seconds=60)


def long_ago(settings: Settings) -> None:
    """Put letters that are due now by the machine's clock."""
    when = datetime.now(UTC) - timedelta(hours=1)
    put(settings, [failed(settings, original(n, b"k%d" % n), when=when) for n in range(COUNT)])


def each_once(settings: Settings) -> None:
    expected = {(f"positions-0-{n}", "1"): 1 for n in range(COUNT)}
    assert seen(settings) == expected
    assert live(settings, settings.topic("dead-letters")) == {}


@pytest.mark.one_of("sweeps that are ended")
def test_killed_at_any_step_nothing_is_sent_twice_and_nothing_lost(ready: Settings) -> None:
    long_ago(ready)
    for name in drawn(STEPS, every=3):
        kill_at(ready, SWEEP_DEAD_LETTERS, pause_anywhere_at=name)
        assert set(seen(ready).values()) <= {1}
        gone = COUNT - len(live(ready, ready.topic("dead-letters")))
        assert gone == len(seen(ready))
    run(ready)
    each_once(ready)
    assert Counter(state for _, state, _ in of_table(ready)) == {"waiting": COUNT, "retried": COUNT}


def swept(log: Path) -> list[str]:
    """Return the partitions whose sweep has ended."""
    return re.findall(r"dead-letters\S*\[\d+\]: ", log.read_text())


@pytest.mark.one_of("sweeps that are ended")
def test_beside_a_halted_sweep_a_second_refuses_and_a_zombie_is_fenced(ready: Settings) -> None:
    long_ago(ready)
    with paused(ready, SWEEP_DEAD_LETTERS, pause_anywhere_at="publish") as zombie:
        # Not halted while the other partition's projection is written: the next would wait for it.
        wait_for(lambda: swept(zombie.log) != [], "the other partition's end")
        zombie.stop()
        with pytest.raises(ShardpostError, match=r"is already running \(pid \d+"):
            run(ready)
        # Nobody sees it: its lock is gone, as after a restart on another machine.
        locks.path_of(installed(ready).files, SWEEP_DEAD_LETTERS.name).unlink()
        run(ready)
        each_once(ready)
        zombie.resume()
        assert zombie.wait() == 1
        assert "fenced: a newer sweep has taken over" in zombie.log.read_text()
    each_once(ready)


def sweeping(settings: Settings) -> "subprocess.Popen[str]":
    """Start the command as a terminal does: it and all that it starts are one group."""
    return subprocess.Popen(
        [str(SHARDPOST), "letters", "sweep"],
        env=submit.job_environment(installed(settings)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.one_of("sweeps that are ended")
def test_interrupted_while_it_sends_it_says_so_and_the_next_goes_on(ready: Settings) -> None:
    count = 3000
    small = ready.model_copy(update={"retry_batch": 1})
    put(small, [failed(small, original(n, b"k%d" % n)) for n in range(count)])
    command = sweeping(small)
    try:
        wait_for(lambda: len(retries(small)) > 20, "some retries")
        os.killpg(command.pid, signal.SIGINT)
        out, log = command.communicate(timeout=60)
    finally:
        command.kill()
    assert (command.returncode, out) == (1, "")
    assert "Traceback" not in log
    assert log.splitlines()[-1] == "shardpost: interrupted"
    assert len(retries(small)) < count
    run(ready)
    assert set(seen(ready).values()) == {1}
    assert len(seen(ready)) == count


@pytest.mark.one_of("sweeps that are ended")
@pytest.mark.parametrize(
    "sign",
    [signal.SIGTERM, signal.SIGINT, signal.SIGKILL],
    ids=["SIGTERM", "SIGINT", "SIGKILL"],
)
def test_a_command_that_is_ended_alone_takes_its_driver_along(
    ready: Settings, sign: signal.Signals
) -> None:
    count = 1000
    foreign = f"{ready.topic('dead-letters')}-foreign"
    client = installed(ready).kafka.admin()
    client.create_topics([NewTopic(foreign, 1, 1)])[foreign].result(30)
    slow = ready.model_copy(update={"retry_batch": 1, "foreign_dead_letters": foreign})
    put(slow, [Outgoing(foreign, b"k", b"v", [], 0) for _ in range(count)])
    store = {slow.topic("dead-letters"): 2}
    command = sweeping(slow)
    try:
        wait_for(lambda: any_there(slow, store), "the first letters taken in")
        tree = psutil.Process(command.pid).children(recursive=True)
        command.send_signal(sign)
        command.communicate(timeout=60)
        _, alive = psutil.wait_procs(tree, timeout=60)
        assert alive == []
    finally:
        command.kill()
    taken_in = sum(1 for _ in committed(slow, slow.topic("dead-letters")))
    assert taken_in < count
    assert run(ready.model_copy(update={"foreign_dead_letters": foreign}))["parked"] == count


def any_there(settings: Settings, store: dict[str, int]) -> bool:
    marks = offsets.watermarks(installed(settings).kafka, store, committed=True)
    return any(low < high for ends in marks.values() for low, high in ends.values())
