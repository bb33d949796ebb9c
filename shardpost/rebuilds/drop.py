"""Dropping the tables beside those in use, and erasing a client's contact from them; no JVM.

A drop is recorded in the topic `decisions` as `rebuild/<number>`, as a swap is; then the tables are
removed from the disk. A contact is erased from them too, since a swap or a rollback would bring it
back; the caller holds the lock of rebuilds for that.
"""

import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from shardpost import ownership
from shardpost.decisions import SHARDPOST, Decision, Kind, decisions_topic
from shardpost.delta import snapshots, stored_files
from shardpost.delta.object_store import Tables
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.erasure import find_contact
from shardpost.holders.model.view_tables import OF_CONTACTS, VIEW
from shardpost.holders.table_commits import restore_table
from shardpost.installation import Installation
from shardpost.logs import step
from shardpost.rebuilds import store
from shardpost.rebuilds.model.rebuild import Rebuild, State
from shardpost.rebuilds.order import Action, Order
from shardpost.rebuilds.store import rebuilding

Headers = dict[str, bytes]


def record(
    installation: Installation,
    order: Order,
    rebuild: Rebuild,
    snapshot: int,
    *,
    again: bool = False,
) -> None:
    """Record a swap or a rollback.

    `again` if an earlier run may have done so for that snapshot: it is there once then.
    """
    headers = {"action": str(order.action).encode(), "snapshot": str(snapshot).encode()}
    decision = _decision(rebuild, Kind.SWAPPED, order.by, order.why)
    _record(installation, rebuild, decision, headers, again=again)


def record_killed(installation: Installation, rebuild: Rebuild, last: Snapshot) -> None:
    """Record the last swap of a rebuild, either way, if its run was killed before it could."""
    if last.rebuilt_in is None or not rebuild.was_swapped(last):
        return
    action = Action.SWAP if rebuild.is_in_use(last) else Action.ROLLBACK
    why = "committed by a run that was killed before it could record this"
    record(installation, Order(action, SHARDPOST, why), rebuild, last.rebuilt_in, again=True)


def _decision(rebuild: Rebuild, kind: Kind, by: str, why: str) -> Decision:
    return Decision(f"rebuild/{rebuild.number}".encode(), kind, by, datetime.now(UTC), why)


_DONE = {Kind.SWAPPED: "the tables are swapped", Kind.DISCARDED: "nothing is dropped"}


def _record(
    installation: Installation,
    rebuild: Rebuild,
    decision: Decision,
    headers: Headers,
    *,
    again: bool,
) -> None:
    """Write a decision; `again`: unless it is on record already."""

    def is_there() -> bool:
        since = rebuild.started_at.replace(microsecond=0)  # decisions have times of whole seconds
        found = decisions_topic.list_since(installation.kafka, since) if again else ()
        return any((one.about, of_it) == (decision.about, headers) for one, of_it in found)

    decisions_topic.record(
        installation.kafka,
        f"{installation.kafka.topic('decisions')}/{decision.about.decode()}",
        decision,
        headers,
        may_write=partial(ownership.require, installation),
        done=f"{_DONE[decision.kind]}: run it again",
        unless=is_there,
    )


def drop(
    installation: Installation,
    number: int | None = None,
    *,
    even_in_use: bool = True,
    decide: Callable[[Rebuild], None] | None = None,
) -> tuple[Rebuild, list[str]]:
    """Drop the tables beside those in use; return the rebuild, and the folders that were removed.

    If the rebuild is in use, these are the previous tables, and a rollback is no longer possible.
    Files that kept snapshots use remain until those expire. The rebuild of a number may
    be dropped already; ShardpostError if it is in use, unless `even_in_use`. `decide` records it
    right before.
    """
    with rebuilding(installation.files, wait=installation.files.lock_wait):
        rebuild = (
            store.require_current(installation.tables)
            if number is None
            else store.get(installation.tables, number)
        )
        if not even_in_use and rebuild.is_in_use(snapshots.current(installation.tables)):
            raise ShardpostError(
                f"rebuild {rebuild.number} is already in use: put the previous tables back in use"
                " first, with `shardpost rebuild rollback`"
            )
        if decide:
            decide(rebuild)
            step("drop on record")
        rebuild = store.update(installation.tables, replace(rebuild, state=State.DROPPED))
        step("dropped")
        return rebuild, remove_unnamed(installation.tables)


def give_up(
    installation: Installation,
    by: str,
    why: str,
    number: int | None = None,
    *,
    even_in_use: bool = True,
) -> tuple[Rebuild, list[str]]:
    """Drop a rebuild as `drop` does, and record by whom and why; return what `drop` returns.

    A drop that is killed in between is recorded and not done; a repeated one is recorded once. A
    swap that was killed before it was on record is recorded first: nobody would do it later.
    """

    def decide(rebuild: Rebuild) -> None:
        if rebuild.is_open:
            record_killed(installation, rebuild, snapshots.current(installation.tables))
        decision = _decision(rebuild, Kind.DISCARDED, by, why)
        _record(installation, rebuild, decision, {"action": b"drop"}, again=True)

    return drop(installation, number, even_in_use=even_in_use, decide=decide)


def remove_unnamed(tables: Tables) -> list[str]:
    """Remove the folders that neither a snapshot nor an open rebuild names; return their names.

    The caller holds the lock of rebuilds, since a rebuild could be swapped meanwhile.
    """
    views = snapshots.newest_of_folders(tables)
    dropped = unnamed(tables, views, store.list_rebuilds(tables))
    for table in dropped:
        stored_files.remove_all(tables, table)
    return [table.path for table in dropped]


def unnamed(
    tables: Tables, views: Collection[Snapshot], rebuilds: Collection[Rebuild]
) -> list[Table]:
    """Return the tables in folders that are there, and that nothing of all this names.

    Those of rebuilds, and those of the tables themselves once the newest snapshot has them
    elsewhere.
    """
    newest = max(views, key=lambda view: view.number, default=None)
    if newest is None:
        return []
    open_ = [rebuild for rebuild in rebuilds if rebuild.is_open]
    every = [*views, *(view for rebuild in open_ for view in rebuild.views(newest))]
    named = {view.located(table).path for view in every for table in VIEW if _has(view, table)}
    named |= {folder for rebuild in open_ for folder in rebuild.folders.values()}
    folders = [{}, *(rebuild.folders for rebuild in rebuilds)]
    located = {
        there.path: there
        for table in VIEW
        if _has(newest, table)
        for there in map(table.located, folders)
    }
    gone = (there for path, there in located.items() if path not in named)
    return [there for there in gone if stored_files.exists(tables, there)]


def _has(view: Snapshot, table: Table) -> bool:
    return table.name in view.tables


def require_none(tables: Tables, what: str) -> None:
    """Raise ShardpostError while the tables of a rebuild are beside those in use."""
    if rebuild := store.current(tables):
        raise ShardpostError(
            f"{what}: not while the tables of rebuild {rebuild.number} are beside those in use:"
            " drop them with `shardpost rebuild drop`"
        )


def rows_beside_with_contact(installation: Installation, client: str) -> dict[str, int]:
    """Return {folder: rows} of tables beside those in use that have the contact."""
    beside = _beside(installation.tables)
    return find_contact(installation, beside[1], client, _own(beside[0]))[1] if beside else {}


def erase_contact_beside(installation: Installation, client: str) -> dict[str, int]:
    """Store the tables beside those in use without the contact; return the rows that had it.

    ShardpostError while they are built: that goes on by the files of its snapshot, as they are.
    """
    found = _beside(installation.tables)
    if found is None:
        return {}
    rebuild, beside = found
    own = _own(rebuild)
    if own and rebuild.state is State.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is being built of snapshot {rebuild.pinned}, which may have"
            " its contact: continue it with `shardpost rebuild start` and the same options, or"
            " `shardpost rebuild drop`; then erase again"
        )
    rewrites, counts = find_contact(installation, beside, client, own)
    if not rewrites:
        return {}
    versions, run = dict(beside.tables), str(uuid.uuid4())
    for table, files in rewrites.items():
        version = restore_table(installation.tables, table, beside)
        there = beside.located(table)
        versions[table.name] = commit_files(installation.tables, there, version, files, run)
    made = replace(beside, tables=versions, erased_in=beside.number)
    step("commit tables beside")
    is_former = beside is rebuild.former
    store.update(
        installation.tables,
        replace(rebuild, former=made) if is_former else replace(rebuild, candidate=made),
    )
    return counts


def _beside(tables: Tables) -> tuple[Rebuild, Snapshot] | None:
    rebuild, newest = store.current(tables), snapshots.newest(tables)
    beside = rebuild.beside(newest) if rebuild and newest else None
    return (rebuild, beside) if rebuild and beside else None


def _own(rebuild: Rebuild) -> Collection[Table]:
    """Return its tables with contacts; those that it shares are erased with those in use."""
    return [table for table in OF_CONTACTS if table.name in rebuild.tables]
