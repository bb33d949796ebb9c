"""The locks of the weekly e-mail: on this machine, one process at a time has a week's shard."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from shardpost.locks import exclusive, holders
from shardpost.settings import Settings
from shardpost.weekly_email.model.iso_week import IsoWeek


@contextmanager
def locked(settings: Settings, week: IsoWeek, shards: Iterable[int]) -> Iterator[None]:
    """Hold the lock of each shard; LockedError if a run is sending one of them."""
    with ExitStack() as locks:
        for shard in shards:
            name = f"{_prefix(week)}{shard}"
            what = f"the weekly e-mail of {week}, shard {shard},"
            locks.enter_context(exclusive(settings, name, what))
        yield


def is_being_sent(settings: Settings, week: IsoWeek) -> bool:
    """Tell whether a run of this machine is sending a shard of the week."""
    return any(path.name.startswith(_prefix(week)) for path, _ in holders(settings))


def _prefix(week: IsoWeek) -> str:
    return f"weekly_email-{week}-"
