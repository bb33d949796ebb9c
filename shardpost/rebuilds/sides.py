"""The two sides of a rebuild at the same offsets; no JVM."""

from datetime import UTC, datetime

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.rebuilds import store
from shardpost.rebuilds.compare import compare
from shardpost.rebuilds.model.difference import Difference
from shardpost.rebuilds.model.rebuild import Rebuild, Standing
from shardpost.settings import Settings


def needs_top_up(settings: Settings) -> bool:
    """Tell whether records came that new tables, which are not in use, have not."""
    newest, rebuild = snapshots.current(settings), store.require_current(settings)
    if rebuild.standing(newest) not in (Standing.READY, Standing.ROLLED_BACK):
        return False
    return rebuild.candidate.number != newest.number


def compared(settings: Settings, number: int | None = None) -> Difference:
    """Compare the tables that an open rebuild, that of a number, has with those before it.

    At the newest snapshot that both have: of tables that are in use, the last one before they were.
    ShardpostError while they are being built.
    """
    newest, rebuild = snapshots.current(settings), store.require_current(settings, number)
    standing = rebuild.standing(newest)
    if standing is Standing.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is {standing} ({rebuild.progress.in_words()}): go on with"
            " `shardpost rebuild start` and the same options"
        )
    candidate, former = rebuild.candidate, rebuild.former
    if standing is Standing.IN_USE:
        if former is None:
            raise unknown_former(rebuild)
        is_same = candidate.number == former.number
        new = candidate if is_same else _in_use_at(settings, newest, former.number)
        return compare(settings, former, new)
    return compare(settings, _in_use_at(settings, newest, candidate.number), candidate)


def unknown_former(rebuild: Rebuild) -> ShardpostError:
    """Return what is wrong where a rebuild is in use and does not know the tables before it.

    So it is in a copy of the tables that was made in the moment of a swap.
    """
    return ShardpostError(
        f"rebuild {rebuild.number}: where the tables before it are is not known: they can neither"
        " be compared nor put in use again; `shardpost rebuild drop` gives them up"
    )


def _in_use_at(settings: Settings, newest: Snapshot, number: int) -> Snapshot:
    if number == newest.number:
        return newest
    return snapshots.get(settings, number, now=datetime.now(UTC))
