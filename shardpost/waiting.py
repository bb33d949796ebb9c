"""Waiting, always bounded: for what changes by itself, and for answers of several at once."""

import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def attempts(seconds: float, every: float) -> Iterator[None]:
    """Come again and again, with a pause of `every` seconds: at least once, until the deadline."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        time.sleep(every)
        yield


def answers(asked: Sequence[Callable[[], T]], seconds: float) -> Iterator[tuple[int, T]]:
    """Yield (number, answer) of what is asked side by side, as they come; none that comes late.

    Each is asked in a thread that ends with the process at the latest: what hangs is left alone.
    """
    found: SimpleQueue[tuple[int, T]] = SimpleQueue()

    def ask(number: int) -> None:
        found.put((number, asked[number]()))

    for number in range(len(asked)):
        Thread(target=ask, args=(number,), daemon=True).start()
    deadline = time.monotonic() + seconds
    for _ in asked:
        try:
            yield found.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return
