"""Who has unsubscribed since a run began: looked up just before each mail is composed."""

import time
from dataclasses import dataclass, field

from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.errors import ShardpostError
from shardpost.holders.spark.held_positions import unsubscribed_since

# So often a running send looks who has unsubscribed since.
INTERVAL_SECONDS = 60.0


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
        except (ShardpostError, OSError, DeltaError, ArrowException) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise SubscriptionsUnknownError(
                f"cannot read from the tables who has unsubscribed ({reason}): mailing stopped;"
                " the remaining clients are not mailed yet: run again"
            ) from None
