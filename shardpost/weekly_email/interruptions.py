"""What ends the mailing of a shard from outside: a signal, a pause; and who unsubscribed meanwhile.

The tables are looked at while the shard is mailed, each every so many seconds. A pause is noticed
between two groups of mails.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.errors import ShardpostError
from shardpost.holders.spark.held_positions import unsubscribed_since
from shardpost.installation import Installation
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_state import WeekState

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# So often a shard that is being mailed looks whether its week was paused, and who unsubscribed.
WATCH_SECONDS = 2.0
INTERVAL_SECONDS = 60.0
# What a table that cannot be read raises.
_UNREADABLE = (ShardpostError, OSError, DeltaError, ArrowException)


@contextmanager
def stop_reason_by_signal() -> Iterator[Callable[[], str | None]]:
    """Give a function that returns why to stop, or None; so the mails under way can be finished.

    The signals are those with which Spark ends its Python workers.
    """
    reasons: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        reasons.append(f"stopped by {name}: the remaining clients are not mailed yet")

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield lambda: reasons[0] if reasons else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class PauseWatch:
    """Tells a shard that is being mailed whether its week was paused; looks every few seconds.

    `clock` gives monotonic seconds. Where the tables cannot be read, it goes on: nobody can have
    written there either, and who asks for subscriptions says what is wrong.
    """

    installation: Installation
    week: IsoWeek
    clock: Callable[[], float]
    _looked_at: float | None = field(default=None, init=False)
    _found: str | None = field(default=None, init=False)

    def __call__(self) -> str | None:
        """Return why to stop, or None."""
        now = self.clock()
        is_due = self._looked_at is None or now - self._looked_at >= WATCH_SECONDS
        if self._found is None and is_due:
            self._looked_at = now
            self._found = self._look()
        return self._found

    def _look(self) -> str | None:
        try:
            paused = WeekState(self.installation, self.week).paused
        except _UNREADABLE as error:
            log.warning("%s: cannot read whether it was paused: %s", self.week, error)
            return None
        return paused.explanation if paused else None


class SubscriptionsUnknownError(ShardpostError):
    """The tables cannot be read for subscriptions, so mailing has to stop."""


def nobody_unsubscribed(client: str) -> bool:
    """Tell of any client that it has not unsubscribed since the run began."""
    del client
    return False


@dataclass
class Unsubscribed:
    """Tells whether a client has unsubscribed since the snapshot that the run began with.

    The answer is of the newest snapshot as of at most `interval` seconds ago. The driver
    passes it to Spark's tasks unused, so the task of each shard has, and refreshes, its own copy.
    """

    tables: Tables
    since: int
    interval: float = field(default_factory=lambda: INTERVAL_SECONDS)
    _clients: frozenset[str] = field(default=frozenset(), init=False)
    _asked_at: float | None = field(default=None, init=False)

    def __call__(self, client: str) -> bool:
        """Return the answer; SubscriptionsUnknownError if there is none."""
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= self.interval:
            self._clients, self._asked_at = self._ask(), now
        return client in self._clients

    def _ask(self) -> frozenset[str]:
        try:
            return unsubscribed_since(self.tables, snapshots.current(self.tables), self.since)
        except _UNREADABLE as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise SubscriptionsUnknownError(
                f"cannot read from the tables who has unsubscribed ({reason}): mailing stopped;"
                " the remaining clients are not mailed yet: run again"
            ) from None
