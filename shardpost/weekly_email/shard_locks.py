"""The locks of the weekly e-mail: on this machine, one process at a time has a week's shard."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.weekly_email.model.iso_week import IsoWeek


@contextmanager
def locked(settings: Settings, week: IsoWeek, shards: Iterable[int]) -> Iterator[None]:
    """Hold the lock of each shard; LockedError if a run is sending one of them."""
    with ExitStack() as locks:
        for shard in shards:
            name = f"weekly_email-{week}-{shard}"
            what = f"the weekly e-mail of {week}, shard {shard},"
            locks.enter_context(exclusive(settings, name, what))
        yield
