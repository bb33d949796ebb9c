"""A second `shardpost up` says that it waits itself."""

import threading
from pathlib import Path

from shardpost.embedded import stack
from shardpost.locks import exclusive
from shardpost.settings import Settings


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
