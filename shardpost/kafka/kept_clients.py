"""Clients that stay open from one use to the next, while somebody is in `keeping`.

A new one takes some twenty milliseconds until it is connected, which a run that stays would spend
again and again. By default nothing is kept, and each is closed after its use.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from confluent_kafka import KafkaException


class _Closable(Protocol):
    def close(self) -> object: ...


Client = TypeVar("Client", bound=_Closable)


class KeptClients(Generic[Client]):
    """Clients between two uses, one for each thing that they are for, and `most` at once.

    Each has threads and connections. One that was not used for `idle_seconds`, or that `is_lost`
    meanwhile, is not used again, nor one that was made with something else than is wanted now.
    """

    def __init__(
        self,
        most: int,
        *,
        idle_seconds: float = float("inf"),
        is_lost: Callable[[Client], bool] = lambda _: False,
    ) -> None:
        self._most, self._idle_seconds, self._is_lost = most, idle_seconds, is_lost
        # With what each was made, and when it was used last.
        self._kept: dict[object, tuple[Client, object, float]] = {}
        self._is_keeping = False

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep in this block what is given back, and close it at the end."""
        self._is_keeping = True
        try:
            yield
        finally:
            self._is_keeping = False
            while self._kept:
                _close(self._kept.popitem()[1][0])

    def take(self, of: object, made_with: object = None) -> Client | None:
        """Return the client that was kept for that; None if there is none."""
        client, found, used_at = self._kept.pop(of, (None, None, 0.0))
        is_idle = time.monotonic() - used_at > self._idle_seconds
        if client is None or not (is_idle or found != made_with or self._is_lost(client)):
            return client
        _close(client)
        return None

    def give_back(
        self, of: object, client: Client, made_with: object = None, *, is_usable: bool = True
    ) -> None:
        """Keep a client, or close it."""
        is_free = of not in self._kept and len(self._kept) < self._most
        if self._is_keeping and is_usable and is_free:
            self._kept[of] = client, made_with, time.monotonic()
        else:
            client.close()


def _close(client: _Closable) -> None:
    with suppress(KafkaException, RuntimeError):
        client.close()
