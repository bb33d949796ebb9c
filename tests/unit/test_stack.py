"""`shardpost up` waits for another, and `down` says what it stopped."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shardpost.embedded import stack
from shardpost.embedded.stack import NOTHING_UP, Part
from shardpost.locks import exclusive
from shardpost.settings import Settings


@dataclass(eq=False)
class Service:
    """A part that is not there."""

    is_up: bool
    stopped: list[Settings] = field(default_factory=list)

    def start(self, settings: Settings) -> None:
        raise AssertionError("nothing is started")

    def stop(self, settings: Settings) -> None:
        self.stopped.append(settings)

    def state(self, settings: Settings) -> dict[str, str]:
        return {"state": stack.UP if self.is_up else stack.DOWN}


@pytest.mark.parametrize(("is_up", "said"), [(False, [NOTHING_UP]), (True, ["stopping Kafka"])])
def test_what_was_stopped_is_said_also_if_it_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_up: bool, said: list[str]
) -> None:
    services = [Service(is_up), Service(False)]
    parts = [Part(str(n), "Kafka", 1, "", service) for n, service in enumerate(services)]
    monkeypatch.setattr(stack, "_all", lambda _: parts)
    found: list[str] = []
    stack.down(Settings(home=tmp_path), say=found.append)
    assert found == said
    assert all(len(service.stopped) == 1 for service in services)


def test_a_home_that_does_not_exist_has_nothing_up(tmp_path: Path) -> None:
    found: list[str] = []
    stack.down(Settings(home=tmp_path / "none"), say=found.append)
    assert found == [NOTHING_UP]
    assert not (tmp_path / "none").exists()


def test_who_waits_for_the_lock_says_for_whom_and_how_long_and_does_not_ask_to_wait(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path, lock_wait=30)
    taken, said = threading.Event(), threading.Event()
    lines: list[str] = []

    def hold() -> None:
        with exclusive(settings, stack.LOCK, "another `shardpost up` or `down`"):
            taken.set()
            said.wait(20)

    def say(line: str) -> None:
        lines.append(line)
        said.set()

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(20)
    with stack._stack_lock(settings, say):
        holder.join()
    [line] = lines
    assert line.startswith("another `shardpost up` or `down` is already running (pid ")
    assert line.endswith("): waiting up to 30 s for it")
    assert "wait for it" not in line
