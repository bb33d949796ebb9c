"""The locks of rebuilds: one run at a time writes tables beside those in use."""

from collections.abc import Iterator
from contextlib import contextmanager

from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.locks import exclusive
from shardpost.settings import Settings

LOCK = "rebuild"


@contextmanager
def rebuilding(settings: Settings, *, wait: float = 0) -> Iterator[None]:
    """Hold the lock of rebuilds; LockedError beside another run that writes their tables.

    A compaction holds it for the seconds of a top-up: `wait` for that.
    """
    with exclusive(settings, LOCK, "a run of the rebuild", wait=wait):
        yield


@contextmanager
def compacting(settings: Settings) -> Iterator[None]:
    """Hold the lock of the compaction, after any that is running: `lock_wait` at most."""
    name = COMPACT_POSITIONS.name
    with exclusive(settings, name, name, wait=settings.lock_wait):
        yield
