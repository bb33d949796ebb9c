"""Beginning a rebuild, or going on with one that was killed."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders.spark.decoder_id import decoder_id
from shardpost.rebuilds import store
from shardpost.rebuilds.arguments import Order
from shardpost.rebuilds.model.rebuild import (
    HISTORIES,
    Rebuild,
    Standing,
    folder_of,
    new_folders,
)
from shardpost.settings import Settings

log = logging.getLogger(__name__)

# The tables themselves are the first.
FIRST = 2


def begun(settings: Settings, order: Order) -> Rebuild:
    """Return the rebuild that an order begins, or the same one that was begun before.

    ShardpostError if there is another one, or its tables are in use.
    """
    last = snapshots.current(settings)
    in_force = last.country_now(settings.country)
    country = order.country if order.country is not None else in_force
    found = store.current(settings)
    if found is None:
        return _new(settings, order, last, country)
    standing = found.standing(last)
    wanted = (order.source, country, order.tables)
    is_same = (found.source, found.country, found.tables) == wanted
    if is_same and standing in (Standing.BUILDING, Standing.READY):
        _require_decoder(found, standing)
        log.info("rebuild %d is %s: going on with it", found.number, standing)
        return found
    raise ShardpostError(
        f"rebuild {found.number} (of {', '.join(found.tables)}, country {found.country}, from"
        f" {found.source}) is {standing}: {_ADVICE[standing]}"
    )


def _require_decoder(found: Rebuild, standing: Standing) -> None:
    """Refuse to go on with histories that another decoder than the installed one has made."""
    begun_ = found.progress.units or standing is Standing.READY
    if begun_ and {*HISTORIES} <= {*found.tables} and found.candidate.decoder != decoder_id():
        raise ShardpostError(
            f"rebuild {found.number} is {standing}, and its records were decoded by other code"
            f" than is installed now: {_ADVICE[standing] if standing is Standing.READY else _DROP}"
        )


_DROP = "drop it first with `shardpost rebuild drop`"
_ADVICE = {
    Standing.BUILDING: f"go on with it by the same options, or {_DROP}",
    Standing.READY: f"swap it, or {_DROP}",
    Standing.ROLLED_BACK: f"swap it, or {_DROP}",
    Standing.IN_USE: "the tables before it are kept for a rollback: give them up first with"
    " `shardpost rebuild drop`",
}


def _new(settings: Settings, order: Order, last: Snapshot, country: str) -> Rebuild:
    every = store.list_all(settings)
    number = max((one.number for one in every), default=FIRST - 1) + 1
    at = datetime.now(UTC)
    shared = {name: version for name, version in last.tables.items() if name not in order.tables}
    if missing := {*order.tables} - {*last.tables}:
        raise ShardpostError(
            f"snapshot {last.number} has no table {min(missing)}: run `shardpost compact` first"
        )
    candidate = replace(
        last,
        tables=shared,
        folders=new_folders(last, order.tables, number),
        folded={name: at for name, at in last.folded.items() if name in shared},
        country=country,
        set_country=None,
    )
    made = Rebuild(
        number=number,
        started_at=at,
        changed_at=at,
        started_by=order.by,
        source=order.source,
        country=country,
        tables=order.tables,
        pinned=last.number,
        candidate=candidate,
    )
    store.insert(settings, made)
    folders = ", ".join(folder_of(name, number) for name in order.tables)
    log.info("rebuild %d of snapshot %d: %s", number, last.number, folders)
    if last.history_from:
        at_minute = f"{last.history_from:%Y-%m-%d %H:%M} UTC"
        log.info("pruned up to %s: a stricter decoder may leave a key without a record", at_minute)
    return made
