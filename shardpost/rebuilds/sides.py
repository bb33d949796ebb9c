"""The two sides of a rebuild at the same offsets; no JVM."""

from datetime import UTC, datetime

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.rebuilds import store
from shardpost.rebuilds.compare import compare
from shardpost.rebuilds.model.difference import Difference
from shardpost.rebuilds.model.rebuild import Standing
from shardpost.settings import Settings


def needs_top_up(settings: Settings) -> bool:
    """Tell whether records came that new tables, which are not in use, have not."""
    newest, rebuild = snapshots.current(settings), store.require_current(settings)
    if rebuild.standing(newest) not in (Standing.READY, Standing.ROLLED_BACK):
        return False
    return rebuild.candidate.number != newest.number


def compared(settings: Settings) -> Difference:
    """Compare the tables that an open rebuild has with those before it.

    At the newest snapshot that both have: of tables that are in use, the last one before they were.
    ShardpostError while they are being built.
    """
    newest, rebuild = snapshots.current(settings), store.require_current(settings)
    standing = rebuild.standing(newest)
    if standing is Standing.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is {standing} ({rebuild.progress.in_words()}): go on with"
            " `shardpost rebuild start` and the same options"
        )
    if standing is Standing.IN_USE:
        assert rebuild.former is not None  # noqa: S101 - swapped
        return compare(settings, rebuild.former, rebuild.candidate)
    candidate = rebuild.candidate
    old = (
        newest
        if candidate.number == newest.number
        else snapshots.get(settings, candidate.number, now=datetime.now(UTC))
    )
    return compare(settings, old, candidate)
