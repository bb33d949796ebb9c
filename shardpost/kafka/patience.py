"""How long to wait for a Kafka that does not answer: less if nobody listens at its addresses."""

import time

from shardpost.kafka.listening import why_nobody_listens
from shardpost.kafka.memory.broker import is_in_memory
from shardpost.settings import Settings

# Before the first request. The kernel of a machine that lives accepts a connection however busy its
# broker is; a lost packet is sent again after a second.
LISTEN_SECONDS = 2.0
# Kafka that was there before, and where nobody listens for so long, is gone. A broker that restarts
# is back sooner, and another one of its cluster listens meanwhile.
GONE_SECONDS = 30.0
LISTEN_AGAIN_SECONDS = 0.5

_found_listening: set[str] = set()  # addresses


def why_gone(address: str) -> str | None:
    """Return why nobody listens there; None if somebody does.

    After LISTEN_SECONDS; after GONE_SECONDS if this process has found somebody there before.
    """
    if is_in_memory(address):
        return None
    deadline = time.monotonic() + (GONE_SECONDS if address in _found_listening else 0)
    while reason := why_nobody_listens(address, LISTEN_SECONDS):
        if time.monotonic() >= deadline:
            _found_listening.discard(address)
            return reason
        time.sleep(LISTEN_AGAIN_SECONDS)
    _found_listening.add(address)
    return None


class Patience:
    """How long to wait for Kafka without any progress: `kafka_timeout`; less if it is gone.

    A cluster that is slow listens all the time, and has the whole time.
    """

    def __init__(self, settings: Settings) -> None:
        self._address, self._most = settings.bootstrap, settings.kafka_timeout
        self.progress()

    def progress(self) -> None:
        """Begin again: something was answered."""
        self._began = self._listened = self._asked = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return for how long there was no progress."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Tell whether to give up; asks now and then whether anybody listens."""
        return self.seconds > self._most or (not is_in_memory(self._address) and self._is_gone())

    def _is_gone(self) -> bool:
        if time.monotonic() - self._asked < LISTEN_SECONDS:
            return False
        reason = why_nobody_listens(self._address, LISTEN_SECONDS)
        self._asked = time.monotonic()
        if reason is None:
            self._listened = self._asked
        is_gone = self._asked - self._listened > GONE_SECONDS
        if is_gone:
            _found_listening.discard(self._address)
        return is_gone
