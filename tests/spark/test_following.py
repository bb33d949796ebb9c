"""A compaction that stays: its turns by Spark, who takes over, and its drivers that are ended.

What it waits for, and how it ends, is in tests/unit/test_follower.py: that needs no Spark.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from shardpost.delta import snapshots
from shardpost.embedded import broker, daemons
from shardpost.holders import following
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.inputs import Arrivals
from shardpost.holders.model.compaction_request import CompactionRequest, Follow
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings, load
from shardpost.topics.creation import apply_topics
from shardpost.watch.model.conditions import SNAPSHOT_AGE
from shardpost.watch.sources import collect_snapshot
from shardpost.weekly_email.email_run import run as weekly_email
from shardpost.weekly_email.model.week import IsoWeek
from spark_jobs.compact_positions import turn
from tests.conftest import environ
from tests.support import rebuilding
from tests.support.command_line import SHARDPOST
from tests.support.compacting import agree, held, run, starter
from tests.support.email_requests import email_request
from tests.support.follower_turns import LATER, Turns, always_new, nothing
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.job_process import Job, wait_for
from tests.support.mail_server import MailServer
from tests.support.record_streams import Growth, Stream
from tests.support.reference import (
    Fold,
    Raw,
    client,
    closed,
    exchange,
    position,
    produce,
    published,
)

pytestmark = pytest.mark.usefixtures("spark")

STAYING = CompactionRequest(follow=Follow(LATER, every=0.2))
# What a turn comes by, of those in which something is half done.
STEPS = ["positions history", "share_holders", "commit", "offsets", "publish", "batch published"]


def batch(number: int) -> list[Raw]:
    """Return new and moved positions, one that is closed, a poison, a country that flips."""
    return [
        *(position(str(n), f"client{(n + number) % 4}", "NASDAQ") for n in range(6)),
        position(f"new{number}", "client1", "LON"),
        closed(str(number % 6)),
        exchange("LON", "US" if number % 2 else "GB"),
        Raw("positions", b"bad", b"{"),
    ]


def test_each_turn_takes_what_has_come_and_publishes_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_topics(installed(settings))
    fold = Fold()
    fold.add(starter())

    def come(number: int) -> Callable[[], object]:
        def begin() -> None:
            if number:
                agree(settings, fold)
            produce(settings, batch(number))
            fold.add(batch(number))

        return begin

    # Another turn is due as soon as the topics have more than the last one has read.
    always_new(monkeypatch)
    turns = Turns(turn, settings, *map(come, range(4)))
    code, document = turns.follow(monkeypatch, CompactionRequest(country_changed=True))
    agree(settings, fold)
    assert code == 0
    assert [asked.country_changed for asked in turns.asked] == [True, False, False, False]
    assert (
        document["following"]["turns"] == len(snapshots.list_all(installed(settings).tables)) == 4
    )
    assert document["following"]["ended"] == "a stop was requested"
    assert following.following(installed(settings).files, datetime.now(UTC)) is None


def test_a_record_begins_a_turn_before_the_next_look_is_due(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_topics(installed(settings))
    wait, waits = Arrivals.wait, list[bool]()

    def waiting(one: Any, last: Any, seconds: float) -> bool:
        if len(waits) == 3:
            produce(settings, batch(0))
        waits.append(wait(one, last, seconds))
        return waits[-1]

    monkeypatch.setattr(Arrivals, "wait", waiting)
    Turns(turn, settings, nothing, nothing).follow(monkeypatch, CompactionRequest(), every=2.0)
    assert waits == [False, False, False, True]
    assert len(snapshots.list_all(installed(settings).tables)) == 2


@pytest.mark.one_of("histories cut into any runs")
def test_what_else_is_done_between_turns_changes_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, server: MailServer
) -> None:
    settings = stream.settings = stream.settings.model_copy(update={"smtp_port": server.port})

    def mail() -> None:
        now = snapshots.current(installed(settings).tables).looked_at
        request = email_request(IsoWeek.of(now), "--early", now=now)
        assert weekly_email(request, installed(settings))[0] == 0

    works: list[Callable[[], object]] = [
        lambda: stream.send([client(f"client{n}", f"client{n}") for n in range(4)]),
        lambda: stream.send([Growth()]),
        lambda: rebuilding.start(settings),
        mail,
        lambda: rebuilding.swap(settings),
        lambda: maintain(installed(settings), datetime.now(UTC) + timedelta(days=9)),
        mail,
    ]

    def begin(number: int, work: Callable[[], object]) -> Callable[[], object]:
        def begins() -> None:
            if number:
                agree(settings, stream.fold)
            work()
            stream.send(batch(number))

        return begins

    always_new(monkeypatch)
    turns = Turns(turn, settings, *(begin(*numbered) for numbered in enumerate(works)))
    code, _ = turns.follow(monkeypatch, CompactionRequest())
    agree(settings, stream.fold)
    assert code == 0
    assert len(turns.asked) == len(works)
    assert server.taken == {f"client{n}@x.example": 1 for n in range(4)}


class Command:
    """`shardpost compact --follow`, as a process."""

    def __init__(self, settings: Settings) -> None:
        self.log = settings.home / f"follow-{datetime.now(UTC).timestamp()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(SHARDPOST), "compact", "--follow", "--every", "1s", "--json"],
                env={**os.environ, **settings.environ()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def end(self) -> Any:
        """Wait for its end; return what it printed."""
        said, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.log.read_text()
        return json.loads(said)


@contextmanager
def command(settings: Settings) -> Iterator[Command]:
    """Give the command; kill what is left of it."""
    made = Command(settings)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def follows(settings: Settings, fold: Fold, run_: Command) -> None:
    """Wait until all that the fold has is published."""

    def is_published() -> bool:
        assert run_.process.poll() is None, run_.log.read_text()
        return published(settings) == fold.holders()

    wait_for(is_published, "following the topics")


def come(settings: Settings, fold: Fold, number: int) -> None:
    """Let a batch come to the topics."""
    produce(settings, batch(number))
    fold.add(batch(number))


@pytest.mark.one_of("whole systems")
def test_a_second_one_takes_over_while_records_come_and_a_sigterm_ends_it(
    settings: Settings,
) -> None:
    apply_topics(installed(settings))
    fold = Fold()
    fold.add(starter())
    with command(settings) as first:
        come(settings, fold, 0)
        follows(settings, fold, first)
        come(settings, fold, 1)
        follows(settings, fold, first)
        with command(settings) as second:
            number = 2
            while first.process.poll() is None:
                come(settings, fold, number)
                follows(settings, fold, second)
                number += 1
            ended = first.end()["following"]["ended"]
            there = following.following(installed(settings).files, datetime.now(UTC))
            assert there is not None
            assert f"process {there.holder.split()[-1]}" in ended
            come(settings, fold, number)
            follows(settings, fold, second)
            second.process.send_signal(signal.SIGTERM)
            done = second.end()
    assert done["following"]["ended"] == "a stop was requested"
    agree(settings, fold)
    assert following.following(installed(settings).files, datetime.now(UTC)) is None


@pytest.mark.one_of("whole systems")
def test_a_compaction_by_hand_beside_it_and_a_kafka_that_was_gone_change_nothing(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    del settings
    home = tmp_path_factory.mktemp("own")
    own = load(environ(home=home, kafka_port=daemons.choose_port(), kafka_timeout=20))
    broker.start(own)
    try:
        apply_topics(installed(own))
        fold = Fold()
        fold.add(starter())
        with command(own) as follower:
            come(own, fold, 0)
            follows(own, fold, follower)
            come(own, fold, 1)
            run(own)
            broker.stop(own)
            wait_for(lambda: "waiting: " in follower.log.read_text(), "the follower to wait")
            broker.start(own)
            come(own, fold, 2)
            follows(own, fold, follower)
            follower.process.send_signal(signal.SIGINT)
            follower.end()
        agree(own, fold)
    finally:
        broker.stop(own)


def is_committed(settings: Settings, fold: Fold) -> bool:
    """Tell whether the newest snapshot has what the fold has."""
    return (
        snapshots.newest(installed(settings).tables) is not None
        and held(settings) == fold.holders()
    )


@pytest.mark.one_of("kills of what makes tables")
def test_killed_in_a_later_turn_the_next_run_ends_as_an_unbroken_one(
    fresh: Callable[[], Settings],
) -> None:
    for step in drawn(STEPS, every=2):
        settings, fold = fresh(), Fold()  # where another one seems to follow, a driver warms up
        fold.add(starter())
        come(settings, fold, 0)
        job = Job(settings, COMPACT_POSITIONS, STAYING, pause_anywhere_at=step, nth_time=2)
        try:
            # Seen when the turn is over, or at the pause in its publishing.
            wait_for(partial(is_committed, settings, fold), "the first turn", job)
            come(settings, fold, 1)
            job.wait_until_paused()
            job.stop()
        finally:
            job.kill()
        run(settings)
        agree(settings, fold)


def aged(settings: Settings, after: timedelta) -> list[str]:
    """Return what a watch says of the snapshot's age, so much later than now."""
    found = collect_snapshot(installed(settings), datetime.now(UTC) + after)
    return [one.text for one in found.conditions if one.rule == SNAPSHOT_AGE.name]


@pytest.mark.one_of("kills of what makes tables")
def test_halted_in_a_turn_it_is_named_to_people_and_goes_on_before_another_run(
    settings: Settings,
) -> None:
    apply_topics(installed(settings))
    fold = Fold()
    fold.add(starter())
    come(settings, fold, 0)
    job = Job(settings, COMPACT_POSITIONS, STAYING, pause_anywhere_at="publish", nth_time=2)
    try:
        wait_for(lambda: published(settings) == fold.holders(), "the first turn", job)
        come(settings, fold, 1)
        job.wait_until_paused()
        job.stop()
        come(settings, fold, 2)
        [found] = aged(settings, timedelta(minutes=32))
        assert "said nothing since" in found
        assert any(f", process {one.pid} has" in found for one in job.tree())
        assert aged(settings, timedelta(minutes=25)) == []
        job.resume()
        wait_for(lambda: published(settings) == fold.holders(), "the next turn", job)
    finally:
        job.kill()
    assert aged(settings, timedelta(minutes=32)) == []  # it is known to have ended
    run(settings)
    agree(settings, fold)
