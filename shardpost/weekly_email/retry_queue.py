"""Mails that wait for their next attempt; model/mail_retry_policy.py says when that is."""

import time
from dataclasses import dataclass, field
from heapq import heappop, heappush

from shardpost.weekly_email.model.mail_retry_policy import Retry
from shardpost.weekly_email.send_plan import MailToSend

# Mails held in memory for a retry; at more than that no fresh ones are started.
MAX_QUEUED = 2000


@dataclass(order=True)
class Attempt:
    """One attempt at a mail, due at `due` (monotonic seconds); the first has number 1.

    `lost`: how many connections this mail has lost.
    """

    due: float
    order: int
    task: MailToSend = field(compare=False)
    number: int = field(default=1, compare=False)
    lost: int = field(default=0, compare=False)


class RetryQueue:
    """Attempts by the time at which they are due."""

    def __init__(self) -> None:
        self._heap: list[Attempt] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """Whether no fresh mail should be started."""
        return len(self) >= MAX_QUEUED

    @property
    def delay(self) -> float:
        """Seconds until the first attempt is due."""
        return self._heap[0].due - time.monotonic()

    def take_due(self, most: int) -> list[Attempt]:
        """Remove and return the attempts that are due."""
        found: list[Attempt] = []
        while len(found) < most and self._heap and self.delay <= 0:
            found.append(heappop(self._heap))
        return found

    def restore(self, attempt: Attempt) -> None:
        """Add an attempt that was not made."""
        heappush(self._heap, attempt)

    def add(self, failed: Attempt, retry: Retry) -> None:
        """Add the next attempt at a mail."""
        due = time.monotonic() + retry.delay
        heappush(self._heap, Attempt(due, failed.order, failed.task, retry.attempt, retry.lost))
