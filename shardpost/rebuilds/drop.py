"""Dropping the standby tables of a rebuild, and erasing a client's contact from them; no JVM.

A drop is recorded in the topic `decisions` as `rebuild/<number>`, as a swap is; then the tables are
removed from the disk. A contact is erased from them too, since a swap or a rollback would bring it
back; the caller holds the lock of rebuilds for that.
"""

import uuid
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from shardpost.decisions import SHARDPOST, Decision, Kind, decisions_topic
from shardpost.delta import snapshots, stored_files
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.erasure import find_contact
from shardpost.holders.folding import Folding, restore_table
from shardpost.holders.model.view_tables import OF_CONTACTS, VIEW
from shardpost.installation import Installation
from shardpost.logs import step
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.rebuild import Rebuild, State
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.topics import guards


def record(
    installation: Installation, request: RebuildRequest, rebuild: Rebuild, snapshot: int
) -> None:
    """Record a swap or a rollback, once, which committed the snapshot of that number."""
    headers = {"action": str(request.action).encode(), "snapshot": str(snapshot).encode()}
    _record(installation, rebuild, Kind.SWAPPED, request.by, request.why, headers)


def record_killed(installation: Installation, rebuild: Rebuild, last: Snapshot) -> None:
    """Record the last swap of a rebuild, either way, if its run was killed before it could."""
    if last.rebuilt_in is None or not rebuild.was_swapped(last):
        return
    action = Action.SWAP if rebuild.is_in_use(last) else Action.ROLLBACK
    why = "committed by a run that was killed before it could record this"
    request = RebuildRequest(action, SHARDPOST, why)
    record(installation, request, rebuild, last.rebuilt_in)


def _record(
    installation: Installation,
    rebuild: Rebuild,
    kind: Kind,
    by: str,
    why: str,
    headers: dict[str, bytes],
) -> None:
    """Write a decision, unless an earlier run, which was then killed, has done so."""
    about = f"rebuild/{rebuild.number}"
    done = "the tables are swapped" if kind is Kind.SWAPPED else "nothing is dropped"
    since = rebuild.started_at.replace(microsecond=0)  # decisions have times of whole seconds

    def is_there() -> bool:
        known = decisions_topic.list_since(installation.kafka, since, {kind})
        return any((other.about, of_it) == (about.encode(), headers) for other, of_it in known)

    decisions_topic.record(
        installation.kafka,
        f"{installation.kafka.topic('decisions')}/{about}",
        Decision(about.encode(), kind, by, datetime.now(UTC), why),
        headers,
        may_write=partial(guards.require_owner, installation),
        done=f"{done}: run it again",
        unless=is_there,
    )


def drop(
    installation: Installation,
    by: str,
    why: str,
    number: int | None = None,
    *,
    even_in_use: bool = True,
) -> tuple[Rebuild, list[str]]:
    """Drop the standby tables; return the rebuild, and the folders that were removed.

    If the rebuild is in use, these are the previous tables, and a rollback is no longer possible.
    Files that kept snapshots use remain until those expire. The rebuild of a number may
    be dropped already; ShardpostError if it is in use, unless `even_in_use`. By whom and why is on
    record before: a drop that is killed in between is recorded and not done. So is a swap that was
    killed before it was on record: nobody would do it later.
    """
    tables = installation.tables
    with registry.rebuilding(installation.files, wait=installation.files.lock_wait):
        rebuild = (
            registry.require_current(tables) if number is None else registry.get(tables, number)
        )
        if not even_in_use and rebuild.is_in_use(snapshots.current(tables)):
            raise ShardpostError(
                f"rebuild {rebuild.number} is already in use: put the previous tables back in use"
                " first, with `shardpost rebuild rollback`"
            )
        if rebuild.is_open:
            record_killed(installation, rebuild, snapshots.current(tables))
        _record(installation, rebuild, Kind.DISCARDED, by, why, {"action": b"drop"})
        step("drop on record")
        return drop_tables(tables, rebuild)


def drop_tables(tables: Tables, rebuild: Rebuild) -> tuple[Rebuild, list[str]]:
    """Do what `drop` records, behind the lock of rebuilds."""
    rebuild = registry.update(tables, replace(rebuild, state=State.DROPPED))
    step("dropped")
    return rebuild, remove_unnamed(tables)


def remove_unnamed(tables: Tables) -> list[str]:
    """Remove the folders that neither a snapshot nor an open rebuild names; return their names.

    The caller holds the lock of rebuilds, since a rebuild could be swapped meanwhile.
    """
    views = snapshots.newest_of_folders(tables)
    dropped = unnamed(tables, views, registry.list_rebuilds(tables))
    for table in dropped:
        stored_files.remove_all(tables, table)
    return [table.path for table in dropped]


def unnamed(
    tables: Tables, views: Collection[Snapshot], rebuilds: Collection[Rebuild]
) -> list[Table]:
    """Return the tables in folders, of rebuilds or from before one, that nothing of this names."""
    newest = max(views, key=lambda view: view.number, default=None)
    if newest is None:
        return []
    open_ = [rebuild for rebuild in rebuilds if rebuild.is_open]
    every = [*views, *(view for rebuild in open_ for view in rebuild.views(newest))]
    named = {
        view.located(table).path for view in every for table in VIEW if table.name in view.tables
    }
    named |= {folder for rebuild in open_ for folder in rebuild.folders.values()}
    folders = [{}, *(rebuild.folders for rebuild in rebuilds)]
    there = [table for table in VIEW if table.name in newest.tables]
    located = {one.path: one for table in there for one in map(table.located, folders)}
    gone = (one for path, one in located.items() if path not in named)
    return [one for one in gone if stored_files.has_files(tables, one)]


def require_none(tables: Tables, what: str) -> None:
    """Raise ShardpostError while the tables of a rebuild are beside those in use."""
    if rebuild := registry.current(tables):
        raise ShardpostError(
            f"{what}: not possible while rebuild {rebuild.number} has tables beside those in"
            " use: drop them with `shardpost rebuild drop`"
        )


def standby_rows_with_contact(installation: Installation, client: str) -> dict[str, int]:
    """Return {folder: rows} of standby tables that have the contact."""
    if (found := _standby(installation.tables)) is None:
        return {}
    _, standby, _, own = found
    return find_contact(installation, standby, client, own)[1]


def erase_standby_contact(installation: Installation, client: str) -> dict[str, int]:
    """Store the standby tables without the contact; return the rows that had it.

    ShardpostError while they are built: that goes on by the files of its snapshot, as they are.
    """
    tables = installation.tables
    if (found := _standby(tables)) is None:
        return {}
    rebuild, standby, newest, own = found
    if own and rebuild.state is State.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is being built from snapshot {rebuild.pinned}, which may"
            " contain its contact: continue it with `shardpost rebuild start` and the same"
            " options, or `shardpost rebuild drop`; then erase again"
        )
    rewrites, counts = find_contact(installation, standby, client, own)
    if not rewrites:
        return {}
    names = {table.name for table in own}
    standby = Folding(tables, standby, names).fold(datetime.now(UTC), names)
    rewrites, _ = find_contact(installation, standby, client, own)
    versions, run = dict(standby.tables), str(uuid.uuid4())
    for table, files in rewrites.items():
        version = restore_table(tables, table, standby)
        versions[table.name] = commit_files(tables, standby.located(table), version, files, run)
    made = replace(standby, tables=versions, erased_in=standby.number)
    step("commit tables beside")
    registry.update(tables, rebuild.with_standby(made, newest))
    return counts


def _standby(tables: Tables) -> tuple[Rebuild, Snapshot, Snapshot, list[Table]] | None:
    """Return the open rebuild, its standby tables, the newest snapshot, and what has contacts."""
    rebuild, newest = registry.current(tables), snapshots.newest(tables)
    if not (rebuild and newest and (standby := rebuild.standby(newest))):
        return None
    # Those that it shares are erased with those in use.
    own = [table for table in OF_CONTACTS if table.name in rebuild.tables]
    return rebuild, standby, newest, own
