"""A run that dies while it publishes."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from shardpost.holders import publishing


@contextmanager
def dying(nth: int) -> Iterator[None]:
    """Let every thread that publishes die once so many batches were published in all."""
    left = itertools.count(nth - 1, -1)

    def die(name: str) -> None:
        if name == "batch published" and next(left) <= 0:
            raise KeyboardInterrupt

    with mock.patch.object(publishing, "step", die):
        yield
