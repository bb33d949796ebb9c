"""The rate limit: at most so many mails per second."""

import math

# Mails that may be sent at once after a pause, in seconds of the rate.
BURST_SECONDS = 0.25


class RateLimit:
    """A token bucket; times are seconds of a monotonic clock."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, (rate or 0) * BURST_SECONDS)
        self._tokens, self._at = 1.0, now

    def allowed(self, now: float) -> float:
        """Return how many mails may be sent now, a whole number or infinity."""
        if self._rate is None:
            return math.inf
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return math.floor(self._tokens + 1e-9)

    def delay(self, now: float) -> float:
        """Return the seconds until one mail may be sent."""
        if self._rate is None or self.allowed(now):
            return 0.0
        return (1 - self._tokens) / self._rate

    def spend(self, mails: int) -> None:
        """Count mails as sent."""
        if self._rate is not None:
            self._tokens -= mails
