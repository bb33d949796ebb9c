"""Mails that were not taken, and when they are tried again."""

import time
from dataclasses import dataclass, field
from heapq import heappop, heappush

from shardpost.settings import Settings
from shardpost.weekly_email.send_plan import ToSend

# Mails held in memory to be tried again; at more than that no fresh ones are taken up.
MOST = 2000


@dataclass(order=True)
class Attempt:
    """One mail to be tried (again) at `due`, monotonic seconds; the first has number 1."""

    due: float
    order: int
    task: ToSend = field(compare=False)
    number: int = field(default=1, compare=False)


class RetryQueue:
    """Attempts by the time at which they are due."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._heap: list[Attempt] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """Tell whether no fresh mail should be taken up."""
        return len(self) >= MOST

    @property
    def delay(self) -> float:
        """Seconds until the first is due."""
        return self._heap[0].due - time.monotonic()

    def due(self, most: int) -> list[Attempt]:
        """Take out those that are due."""
        found: list[Attempt] = []
        while len(found) < most and self._heap and self.delay <= 0:
            found.append(heappop(self._heap))
        return found

    def put_back(self, attempt: Attempt) -> None:
        """Take an attempt that was not made."""
        heappush(self._heap, attempt)

    def put_again(self, attempt: Attempt, *, is_attempt: bool) -> None:
        """Take a mail for its next attempt, each later than the last; at once if this was none."""
        settings, due, number = self._settings, time.monotonic(), attempt.number
        if is_attempt:
            due += settings.mail_first_delay * settings.mail_delay_factor ** (number - 1)
            number += 1
        heappush(self._heap, Attempt(due, attempt.order, attempt.task, number))
