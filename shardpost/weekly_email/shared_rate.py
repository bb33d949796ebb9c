"""The rate of mails: one for an installation, whatever weeks, runs, jobs and commands send at once.

A sender takes turns. A turn is a time from which it may send so many mails, which are half a second
of the rate, and it begins when the one that was taken before has ended, whoever took that. When the
next turn is free is in a shared file, so it holds between processes, and on an object store between
machines, whose clocks it takes to be alike. What a sender leaves of a turn is lost: a rate is a
limit, not a promise.
"""

import json
import math
import time
import uuid
from collections.abc import Callable

from shardpost.locks.shared_files import Files, SharedFile

FILE = "mail-rate.json"
TURN_SECONDS = 0.5


class SharedRate:
    """What one sender may send now, by the mails per second of all; `rate` None: as many as it can.

    `clock` returns seconds since 1970.
    """

    def __init__(
        self, files: Files, rate: float | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._file, self._clock = SharedFile(files, FILE), clock
        self._rate = math.inf if rate is None else rate
        self._size = math.inf if rate is None else max(1, round(rate * TURN_SECONDS))
        self._left, self._from = 0.0, 0.0

    @property
    def most(self) -> float:
        """How many mails may be sent together, in this turn or, where it is used up, the next."""
        return self._left or self._size

    def delay(self) -> float:
        """Return the seconds until `most` mails may be sent; take the next turn if there is none.

        Who has nothing to send does not ask: the turn would be lost.
        """
        if self._left == 0:
            self._left = self._size
            if math.isfinite(self._rate):
                self._file.change_alone(self._take_turn)
        return max(0.0, self._from - self._clock())

    def spend(self, mails: int) -> None:
        """Count mails as sent."""
        self._left -= mails

    def _take_turn(self, text: str | None) -> str:
        now = self._clock()
        known = json.loads(text) if text else {"free_at": now, "taken_at": now}
        # A clock that was put back says nothing of turns that were taken by the one before.
        is_known = known["taken_at"] <= now + TURN_SECONDS
        self._from = max(now, known["free_at"]) if is_known else now
        free_at = self._from + self._size / self._rate
        # Each text is another one: of two who write the same, both would take the turn.
        return json.dumps({"free_at": free_at, "taken_at": now, "turn": uuid.uuid4().hex})
