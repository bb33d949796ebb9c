"""Records that later ones superseded leave the histories after SHARDPOST_HISTORY_DAYS."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shardpost.dead_letters.letters_table import origins
from shardpost.delta import snapshots
from shardpost.delta.snapshot_retention import kept, latest_certain
from shardpost.delta.table_errors import table_errors
from shardpost.holders import pruned_histories
from shardpost.holders.pruned_histories import PRUNED, Pruning
from shardpost.locks import LockedError
from shardpost.maintenance.model.plan import in_bytes
from shardpost.rebuilds.drop import OpenRebuildError, require_none
from shardpost.rebuilds.store import rebuilding
from shardpost.settings import Settings
from shardpost.steps import step

STAYS = "what is superseded and old stays"


@dataclass
class PrunedRecords:
    """How many rows went by table, and about how many bytes; with `dry_run`: would go.

    `history_from` is the time from which on all is kept; None if nothing goes.
    """

    dry_run: bool
    history_from: datetime | None = None
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    postponed: dict[str, str] = field(default_factory=dict)
    warning: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        at = self.history_from and self.history_from.isoformat()
        return {
            "history_from": at,
            "rows": self.rows,
            "bytes": self.bytes,
            "postponed": self.postponed,
        }

    def lines(self) -> list[str]:
        """Return it in words."""
        lines = [f"records: pruned in part, or not now: {why}" for why in self.postponed.values()]
        if self.history_from is None:
            return [*lines, "records: none is superseded and old"]
        rows = ", ".join(f"{count} of {table}" for table, count in self.rows.items())
        verb = "would leave" if self.dry_run or self.postponed else "leave"
        before = f"{self.history_from:%Y-%m-%d %H:%M} UTC"
        line = f"records: {rows} {verb} the histories, superseded before {before}"
        return [f"{line}; {in_bytes(self.bytes)}", *lines]


def prune_old(settings: Settings, now: datetime, *, dry_run: bool = False) -> PrunedRecords:
    """Prune what is superseded and old, as a snapshot of its own; nothing if that is not set.

    Postponed beside a compaction that takes longer than `lock_wait`, and while the tables of a
    rebuild are beside those in use. How old it is does not trust
    the clock alone (snapshot_retention.py).
    """
    result = PrunedRecords(dry_run)
    newest = snapshots.newest(settings)
    if settings.history_days is None or newest is None:
        return result
    with table_errors():
        at = _certain(settings, now) - timedelta(days=settings.history_days)
        of_letters = {name: origins(settings, settings.topic(name)) for name in PRUNED}
        step("find old records")
        found = pruned_histories.find(settings, newest, at, of_letters)
        if not found.rows:
            return result
        result.history_from, result.rows, result.bytes = at, found.rows, found.bytes
        try:
            if dry_run:
                require_none(settings, STAYS)
            else:
                _prune(settings, found, now)
        except LockedError as error:
            result.postponed["histories"] = error.holder
        except OpenRebuildError as error:
            result.postponed["histories"] = str(error)
    return result


def _certain(settings: Settings, now: datetime) -> datetime:
    """Return the latest time that it is for certain, by the snapshots that are kept by their age.

    Those before, which a frozen week keeps, are weeks apart, of which a day counts each.
    """
    committed = {one.number: one.committed_at for one in snapshots.list_all(settings)}
    young = kept(committed.items(), now, settings.snapshot_days)
    return latest_certain(((number, committed[number]) for number in young), now)


def _prune(settings: Settings, found: Pruning, now: datetime) -> None:
    """Prune, if no tables are beside those in use; under the lock of rebuilds: none begins."""
    with rebuilding(settings, wait=settings.lock_wait):
        require_none(settings, STAYS)
        step("prune records")
        pruned_histories.prune(settings, found, now)
