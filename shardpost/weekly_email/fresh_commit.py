"""The last look before a mail is sent, at whether this run is still the one that may send it.

A run that is halted between the commit of `sending` and SMTP, while another one takes over its
shard, would send mails that the other run has dealt with. So the content of a mail is sent only
shortly after a commit; else `sending` is committed once more, which a fenced run cannot do. What is
left is a halt of just the moment between this look and the write to the socket.
"""

import time
from collections.abc import Callable, Sequence
from threading import Lock

from shardpost.errors import ShardpostError
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import LedgerEntry

# How old the last commit may be when content is sent, seconds.
FRESH_SECONDS = 2.0
MOST_COMMITS = 5


def seconds_since_boot() -> float:
    """Return seconds of a clock that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class StaleLedgerError(ShardpostError):
    """Commits of the ledger take too long to be sure of anything."""


class FreshCommit:
    """The commit of `sending` for one group of mails; several threads may ask for it."""

    def __init__(
        self,
        ledger: Ledger,
        entries: Sequence[LedgerEntry],
        clock: Callable[[], float],
    ) -> None:
        self._ledger, self._entries, self._clock = ledger, entries, clock
        self._lock = Lock()
        # Before the commit, since a halt may come right after it.
        self._begun = clock()
        self._failure: Exception | None = None

    def require(self) -> None:
        """Return if the last commit is fresh, or could be renewed.

        FencedError if another run has the shard; StaleLedgerError if no commit is quick enough.
        What it raised once, it raises to all who ask later: none of them may send.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                self._require()
            except Exception as error:
                self._failure = error
                raise

    def _require(self) -> None:
        for _ in range(MOST_COMMITS):
            begun = self._clock()
            if begun - self._begun <= FRESH_SECONDS:
                return
            self._ledger.write(self._entries)
            self._begun = begun
        if self._clock() - self._begun > FRESH_SECONDS:
            raise StaleLedgerError(
                f"no commit of the ledger within {FRESH_SECONDS:g} s: is Kafka overloaded?"
            )
