"""A sweep of letters that all wait reads none of them, until one is due; Kafka in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shardpost.dead_letters import quiet_sweep
from shardpost.dead_letters.model.error_fingerprint import fingerprint
from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS, SweepRequest
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult, document_of
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    append,
    at,
    failed,
    milliseconds,
    original,
    produce,
    sweep,
    total,
)
from tests.support.memory_kafka import memory_kafka

DELAY, LONG = 100, 80_000
Change = Callable[[Settings], Settings | None]


@contextmanager
def waiting(delay: int) -> Iterator[Settings]:
    """Give settings of two letters, due after so many seconds, that were swept after ten."""
    given = {"partitions": 2, "retry_jitter": 0.0, "retry_first_delay": delay}
    with memory_kafka(lambda: milliseconds(START), **given) as kafka:
        apply_topics(installed(kafka.settings))
        for number in range(2):
            produce(kafka.settings, failed(kafka.settings, original(number, b"%d" % number)))
        assert total(sweep(kafka.settings, at(10))) == {"waiting": 2}
        append(kafka.settings)
        yield kafka.settings


@pytest.fixture
def ready() -> Iterator[Settings]:
    with waiting(DELAY) as settings:
        yield settings


def quiet(settings: Settings, seconds: float) -> JobResult | None:
    """Return the result of a sweep at that time that needs no Spark; None if it needs it."""
    return SWEEP_DEAD_LETTERS.without_spark(
        installed(settings), document_of(SweepRequest(at(seconds)))
    )


def test_until_a_letter_is_due_nothing_is_read(ready: Settings) -> None:
    found = quiet(ready, DELAY - 0.001)
    assert found is not None
    assert (found[0], found[1]["waiting"], found[1]["retried"]) == (0, 2, 0)
    assert quiet(ready, DELAY) is None
    assert total(sweep(ready, at(DELAY))) == {"retried": 2}


def a_letter(settings: Settings) -> None:
    produce(settings, failed(settings, original(2)))
    append(settings)


def a_tombstone(settings: Settings) -> None:
    client = installed(settings).kafka.producer()
    client.produce(settings.topic("dead-letters"), None, b"positions-0-1", 0)
    client.flush()
    append(settings)


@pytest.mark.parametrize(
    "change",
    [
        a_letter,
        a_tombstone,
        lambda settings: settings.model_copy(update={"retry_factor": 3.0}),
        lambda settings: settings.model_copy(update={"retry_flood": 1}),
    ],
)
def test_after_a_change_it_is_read(ready: Settings, change: Change) -> None:
    assert quiet(ready, 20)
    assert quiet(change(ready) or ready, 20) is None


def test_other_code_reads_it(ready: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_sweep, "_code", lambda: 1)
    assert quiet(ready, 20) is None


def test_neither_a_clock_that_was_put_back_nor_an_old_note_counts() -> None:
    hour = quiet_sweep.VALID_FOR.total_seconds()
    with waiting(LONG) as settings:
        assert quiet(settings, 10)
        assert quiet(settings, 9 + hour)
        assert quiet(settings, 9) is None
        assert quiet(settings, 10 + hour) is None


def test_a_sweep_that_holds_letters_is_no_quiet_one(ready: Settings) -> None:
    guarded = ready.model_copy(update={"retry_flood": 1})
    held = frozenset([fingerprint("ValueError: bad")])
    assert total(sweep(guarded, at(DELAY), held=held)) == {"held": 2}
    assert quiet(guarded, DELAY) is None


def test_without_its_note_it_is_read(ready: Settings) -> None:
    (ready.home / quiet_sweep.FILE).write_text("{")
    assert quiet(ready, 20) is None
    (ready.home / quiet_sweep.FILE).unlink()
    assert quiet(ready, 20) is None
