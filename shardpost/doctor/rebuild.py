"""The rebuild whose tables are beside those in use: since when, and whether anybody goes on.

Never an alarm: that tables wait for a person is what they are there for.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from shardpost.delta import snapshots
from shardpost.delta.query import table_errors
from shardpost.doctor.finding import Finding, ok
from shardpost.rebuilds import store
from shardpost.rebuilds.model.rebuild import Rebuild, State
from shardpost.settings import Settings

# So long, tables beside those in use may wait without a word: they take disk for as long.
OPEN_FOR = timedelta(days=7)
# A unit of work takes some seconds, or minutes.
WITHOUT_PROGRESS = timedelta(hours=6)


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Say which rebuild is open; nothing if none is."""
    with table_errors():
        newest, found = snapshots.newest(settings), store.current(settings)
    if found is not None and newest is not None:
        line = f"{found.number} is {found.standing(newest)}, begun {found.started_at:%Y-%m-%d}"
        yield ok("rebuild", "".join([line, *_hints(found, now)]))


def _hints(found: Rebuild, now: datetime) -> Iterator[str]:
    if found.state is State.BUILDING:
        yield f": {found.progress.in_words()}"
        if now - found.changed_at > WITHOUT_PROGRESS:
            hours = (now - found.changed_at) // timedelta(hours=1)
            yield f"; no progress for {hours} hours: `shardpost rebuild start` goes on"
    elif now - found.started_at > OPEN_FOR:
        yield "; its tables take disk until `shardpost rebuild drop`: `shardpost tables list`"
