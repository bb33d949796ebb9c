"""The signals with which Spark ends its Python workers, turned into a reason to stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_reason_by_signal() -> Iterator[Callable[[], str | None]]:
    """Give a function that returns why to stop, or None; so the mails under way can be finished."""
    reasons: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        reasons.append(
            f"stopped by {signal.Signals(number).name}: clients that were not mailed stay open"
        )

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield lambda: reasons[0] if reasons else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
