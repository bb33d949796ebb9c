"""What comes to the inputs: a record that is waited for, and a burst that is let come."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from threading import Timer

import pytest

from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.embedded import daemons
from shardpost.holders import inputs
from shardpost.holders.inputs import Arrivals, Inputs
from shardpost.kafka.records import Offsets, TopicPartition
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.values.holding_rule import Rule
from tests.support.installed import installed
from tests.support.transactions import begun_transaction

NOW = datetime(2026, 11, 27, 9, 30, tzinfo=UTC)
LONG = 120.0  # seconds: more than any wait takes that is ended by a record
SHORT = 1.0


def snapshot_at(ends: Offsets) -> Snapshot:
    """Return a snapshot of a run that has read up to those offsets."""
    return Snapshot(1, NOW, NOW, ends, {}, Counts(), Rule("US"), 4, "test", "test")


@pytest.fixture
def positions(settings: Settings) -> str:
    apply_topics(installed(settings))
    return settings.topic("positions")


@pytest.fixture
def awaited(settings: Settings) -> Iterator[Arrivals]:
    with closing(Arrivals(installed(settings))) as made:
        yield made


def send(settings: Settings, topic: str) -> None:
    client = installed(settings).kafka.producer()
    client.produce(topic, b"{}", "key", partition=2)
    assert client.flush(30) == 0


def test_a_record_ends_the_wait_and_one_that_was_read_does_not(
    settings: Settings, positions: str, awaited: Arrivals
) -> None:
    for read in range(3):
        last = snapshot_at({positions: {0: 0, 1: 0, 2: read, 3: 0}})
        assert not awaited.wait(last, SHORT)
        coming = Timer(0.2, send, (settings, positions))
        coming.start()
        assert awaited.wait(last, LONG)
        coming.join()
        assert awaited.look(last)


def test_a_record_that_is_not_committed_does_not_end_the_wait(
    settings: Settings, positions: str, awaited: Arrivals
) -> None:
    last = snapshot_at({positions: dict.fromkeys(range(4), 0)})
    writer = begun_transaction(settings, "somebody")
    writer.produce(positions, b"{}", "key", partition=1)
    writer.flush(30)
    assert not awaited.wait(last, SHORT)
    writer.commit_transaction(30)
    assert awaited.wait(last, LONG)


def test_a_kafka_that_is_away_and_a_topic_that_is_gone_end_no_wait(
    settings: Settings, positions: str, awaited: Arrivals
) -> None:
    assert not awaited.wait(snapshot_at({"gone": {0: 0}, positions: {0: 0}}), SHORT)
    away = {"bootstrap_servers": f"127.0.0.1:{daemons.choose_port()}"}
    with closing(Arrivals(installed(settings.model_copy(update=away)))) as nobody:
        assert not nobody.wait(snapshot_at({positions: {0: 0}}), SHORT)


@pytest.mark.parametrize(
    ("found", "looks"),
    [
        pytest.param([0], 1, id="nothing new"),
        pytest.param([1, 1], 2, id="one record"),
        pytest.param([1_000, 1_050], 2, id="a steady stream"),
        pytest.param([500, 3_000, 9_000, 10_000, 10_000], 4, id="a burst"),
    ],
)
def test_a_turn_waits_while_much_more_comes(
    found: list[int], looks: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = TopicPartition("positions", 0)
    left = iter(found)
    ends = ({partition: 7 + more} if more else {} for more in left)
    monkeypatch.setattr(Inputs, "other_ends", lambda *_: next(ends))
    made = Arrivals(installed(settings))
    assert made.look(snapshot_at({"positions": {0: 7}})) == bool(found[0])
    assert len([*left]) == len(found) - looks


def test_a_burst_that_does_not_end_is_waited_for_only_so_long(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "LONGEST_BURST", 4 * inputs.BURST_LOOK)
    ends = ({TopicPartition("positions", 0): 2**n} for n in range(1_000))
    monkeypatch.setattr(Inputs, "other_ends", lambda *_: next(ends))
    assert Arrivals(installed(settings)).look(snapshot_at({}))
    assert next(ends)[TopicPartition("positions", 0)] <= 2**6


def all_read(settings: Settings) -> Snapshot:
    """Return a snapshot of a run that has read all that is there."""
    ends: dict[str, dict[int, int]] = {}
    for (topic, number), end in Inputs(installed(settings)).other_ends(snapshot_at({})).items():
        ends.setdefault(topic, {})[number] = end
    return snapshot_at(ends)


def test_what_another_run_has_read_while_a_turn_waited_for_it_ends_no_wait(
    settings: Settings, positions: str, awaited: Arrivals
) -> None:
    before = all_read(settings)
    send(settings, positions)
    assert awaited.look(before)
    send(settings, positions)
    last = all_read(settings)  # by another run, and the turn finds nothing
    awaited.note(is_changed=False)
    assert not awaited.look(last)
    assert not awaited.wait(last, SHORT)


def test_a_record_with_which_no_turn_is_due_ends_one_wait(
    settings: Settings, positions: str, awaited: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(settings, positions)
    last = snapshot_at({positions: {0: 0, 1: 0, 2: 0, 3: 0}})
    with monkeypatch.context() as patch:
        patch.setattr(Inputs, "other_ends", lambda *_: {})
        assert not awaited.look(last)
        assert awaited.wait(last, LONG)
        assert not awaited.look(last)
        assert not awaited.wait(last, SHORT)
    assert awaited.look(last)
    assert awaited.wait(last, LONG)
