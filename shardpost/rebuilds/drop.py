"""Giving up the tables beside those in use, and removing them from the disk."""

from dataclasses import replace

from shardpost.delta import snapshots, stored_files
from shardpost.errors import ShardpostError
from shardpost.holders.model.tables import VIEW
from shardpost.rebuilds import store
from shardpost.rebuilds.locked import rebuilding
from shardpost.rebuilds.model.rebuild import Rebuild, State
from shardpost.settings import Settings
from shardpost.steps import step


def drop(
    settings: Settings, number: int | None = None, *, even_in_use: bool = True
) -> tuple[Rebuild, list[str]]:
    """Give up the tables beside those in use; return the rebuild, and the folders that went.

    Of a rebuild that is in use that are the tables before it: there is no rollback any more. What
    kept snapshots name stays until the maintenance thins them. The rebuild of a number may be
    dropped already; ShardpostError if it is in use, unless `even_in_use`.
    """
    with rebuilding(settings, wait=settings.lock_wait):
        found = store.require_current(settings) if number is None else store.get(settings, number)
        if not even_in_use and found.is_in_use(snapshots.current(settings)):
            raise ShardpostError(
                f"rebuild {found.number} is in use by now: put the tables before it in use first,"
                " with `shardpost rebuild rollback`"
            )
        found = store.update(settings, replace(found, state=State.DROPPED))
        step("dropped")
        return found, remove_unnamed(settings)


def remove_unnamed(settings: Settings) -> list[str]:
    """Remove the folders of dropped rebuilds that no snapshot names; return which."""
    every = snapshots.list_all(settings)
    named = {view.located(table).path for view in every for table in VIEW}
    removed = []
    for rebuild in store.list_all(settings):
        if rebuild.is_open:
            continue
        for table in VIEW:
            located = table.located(rebuild.folders)
            if located.path not in named | {table.name} and stored_files.exists(settings, located):
                stored_files.remove_all(settings, located)
                removed.append(located.path)
    return removed


def require_none(settings: Settings, what: str) -> None:
    """Refuse what would go wrong beside the tables of a rebuild."""
    if found := store.current(settings):
        raise ShardpostError(
            f"{what}: not while the tables of rebuild {found.number} are beside those in use: drop"
            " them with `shardpost rebuild drop`"
        )
