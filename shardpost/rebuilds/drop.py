"""Giving up the tables beside those in use, and removing them from the disk."""

from collections.abc import Callable, Collection
from dataclasses import replace

from shardpost.delta import snapshots, stored_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import VIEW
from shardpost.rebuilds import store
from shardpost.rebuilds.locked import rebuilding
from shardpost.rebuilds.model.rebuild import Rebuild, State
from shardpost.settings import Settings
from shardpost.steps import step


class OpenRebuildError(ShardpostError):
    """Tables of a rebuild are beside those in use."""


def drop(
    settings: Settings,
    number: int | None = None,
    *,
    even_in_use: bool = True,
    decide: Callable[[Rebuild], None] | None = None,
) -> tuple[Rebuild, list[str]]:
    """Give up the tables beside those in use; return the rebuild, and the folders that went.

    Of a rebuild that is in use that are the tables before it: there is no rollback any more. What
    kept snapshots name stays until the maintenance thins them. The rebuild of a number may be
    dropped already; ShardpostError if it is in use, unless `even_in_use`. `decide` puts it on
    record, right before.
    """
    with rebuilding(settings, wait=settings.lock_wait):
        found = store.require_current(settings) if number is None else store.get(settings, number)
        if not even_in_use and found.is_in_use(snapshots.current(settings)):
            raise ShardpostError(
                f"rebuild {found.number} is in use by now: put the tables before it in use first,"
                " with `shardpost rebuild rollback`"
            )
        if decide:
            decide(found)
            step("drop on record")
        found = store.update(settings, replace(found, state=State.DROPPED))
        step("dropped")
        return found, remove_unnamed(settings)


def remove_unnamed(settings: Settings) -> list[str]:
    """Remove the folders that neither a snapshot nor an open rebuild names; return which.

    The caller holds the lock of rebuilds: without it, a rebuild could be swapped meanwhile.
    """
    found = unnamed(settings, snapshots.list_all(settings), store.list_all(settings))
    for table in found:
        stored_files.remove_all(settings, table)
    return [table.path for table in found]


def unnamed(
    settings: Settings, views: Collection[Snapshot], rebuilds: Collection[Rebuild]
) -> list[Table]:
    """Return the tables in folders that are there, and that nothing of all this names.

    Those of rebuilds, and those of the tables themselves once the newest snapshot has them
    elsewhere.
    """
    newest = max(views, key=lambda view: view.number, default=None)
    if newest is None:
        return []
    open_ = [one for one in rebuilds if one.is_open]
    every = [*views, *(view for one in open_ for view in one.views(newest))]
    named = {view.located(table).path for view in every for table in VIEW if _has(view, table)}
    named |= {folder for one in open_ for folder in one.folders.values()}
    folders = [{}, *(one.folders for one in rebuilds)]
    located = {
        there.path: there
        for table in VIEW
        if _has(newest, table)
        for there in (table.located(one) for one in folders)
    }
    gone = (there for path, there in located.items() if path not in named)
    return [there for there in gone if stored_files.exists(settings, there)]


def _has(view: Snapshot, table: Table) -> bool:
    return table.name in view.tables


def require_none(settings: Settings, what: str) -> None:
    """Refuse what would go wrong beside the tables of a rebuild: OpenRebuildError."""
    if found := store.current(settings):
        raise OpenRebuildError(
            f"{what}: not while the tables of rebuild {found.number} are beside those in use: drop"
            " them with `shardpost rebuild drop`"
        )
