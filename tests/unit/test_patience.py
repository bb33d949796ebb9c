"""How long Kafka is waited for, by a clock and a network of the test."""

from dataclasses import dataclass

import pytest

from shardpost.kafka import clients
from shardpost.kafka.clients import Patience
from shardpost.settings import Settings

ADDRESS = "kafka.test:9092"


@dataclass
class World:
    """A time that passes by sleeping, and an address that is there up to some instant."""

    now: float = 0
    gone_at: float = float("inf")
    back_at: float = float("inf")

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def why_nobody_listens(self, bootstrap: str, seconds: float) -> str | None:
        assert (bootstrap, seconds) == (ADDRESS, 2)
        return "connection refused" if self.gone_at <= self.now < self.back_at else None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(clients, "time", made)
    monkeypatch.setattr(clients, "why_nobody_listens", made.why_nobody_listens)
    monkeypatch.setattr(clients, "_found_listening", set())
    return made


def gives_up_after(world: World, waiting: Patience) -> float:
    while not waiting.is_over:
        world.sleep(1)
    return world.now


def test_a_kafka_that_listens_has_the_whole_time(world: World) -> None:
    waiting = Patience(Settings(bootstrap_servers=ADDRESS, kafka_timeout=60))
    assert gives_up_after(world, waiting) == 61


def test_a_kafka_that_is_gone_is_given_up_soon(world: World) -> None:
    waiting = Patience(Settings(bootstrap_servers=ADDRESS, kafka_timeout=60))
    world.gone_at = 10
    assert world.gone_at + clients.GONE_SECONDS <= gives_up_after(world, waiting) < 45


def test_one_that_restarts_has_the_whole_time(world: World) -> None:
    waiting = Patience(Settings(bootstrap_servers=ADDRESS, kafka_timeout=60))
    world.gone_at, world.back_at = 10, 20
    assert gives_up_after(world, waiting) == 61


def test_after_progress_the_time_begins_again(world: World) -> None:
    waiting = Patience(Settings(bootstrap_servers=ADDRESS, kafka_timeout=60))
    world.sleep(50)
    waiting.progress()
    assert waiting.seconds == 0
    assert gives_up_after(world, waiting) == 111


def test_before_the_first_request_nobody_is_waited_for(world: World) -> None:
    world.gone_at = 0
    with pytest.raises(clients.KafkaUnreachableError, match="connection refused"):
        clients.require_listening(Settings(bootstrap_servers=ADDRESS))
    assert world.now == 0


def test_a_kafka_that_was_there_may_restart_and_is_then_gone_at_once(world: World) -> None:
    settings = Settings(bootstrap_servers=ADDRESS)
    clients.require_listening(settings)
    world.gone_at, world.back_at = 0, 10
    clients.require_listening(settings)
    assert 10 <= world.now < 12
    world.back_at = float("inf")
    began = world.now
    for _ in range(3):  # the first of them waits
        with pytest.raises(clients.KafkaUnreachableError):
            clients.require_listening(settings)
    assert clients.GONE_SECONDS <= world.now - began < clients.GONE_SECONDS + 1
