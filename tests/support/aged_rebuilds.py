"""Rebuilds of aged tables, made without Spark: copies of the tables in use, beside them.

They are written, committed and swapped in the order in which a rebuild does it.
"""

from dataclasses import dataclass, replace

from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.holders.folding import restore_table
from shardpost.holders.model.view_tables import VIEW
from shardpost.rebuilds import registry
from shardpost.rebuilds.drop import drop_tables
from shardpost.rebuilds.model.rebuild import Rebuild, Standing, State
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.run import begun
from shardpost.rebuilds.swap import swap_tables
from tests.support.aged_tables import AgedTables
from tests.support.installed import installed


def drop_open(tables: Tables) -> tuple[Rebuild, list[str]]:
    """Drop the open rebuild, of which nothing gets on record; return which folders went, too."""
    return drop_tables(tables, registry.require_current(tables))


@dataclass
class AgedRebuilds:
    """What is done with rebuilds of `aged`; each method is what one run does.

    With `crash` a run ends before its row is stored: `files` were written, or `tables` committed.
    """

    aged: AgedTables
    _writes: int = 0

    @property
    def current(self) -> Rebuild | None:
        """The rebuild that is open."""
        return registry.current(installed(self.aged.settings).tables)

    def begin(self, *tables: str) -> Rebuild:
        """Begin one, of which nothing is built."""
        return begun(
            installed(self.aged.settings),
            RebuildRequest(Action.START, "tester", country="US", tables=tables),
        )

    def build(self, crash: str | None = None) -> None:
        """Build what was begun, of the snapshot that it is pinned to."""
        found = registry.require_current(installed(self.aged.settings).tables)
        pinned = snapshots.stored(installed(self.aged.settings).tables, found.pinned)
        candidate = self._copied(found, found.candidate, pinned, crash)
        if not crash:
            built = replace(found, candidate=candidate, state=State.BUILT)
            registry.update(installed(self.aged.settings).tables, built)

    def top_up(self, crash: str | None = None) -> Snapshot:
        """Bring the tables beside to the newest snapshot; return them."""
        found, newest = self._now()
        beside = found.standby(newest)
        assert beside is not None
        made = self._copied(found, beside, newest, crash)
        if not crash:
            moved = found.with_standby(made, newest)
            registry.update(installed(self.aged.settings).tables, moved)
        return made

    def swap(self) -> None:
        """Swap, or roll back."""
        beside = self.top_up()
        found, newest = self._now()
        made, _, _ = swap_tables(installed(self.aged.settings), found, newest, beside)
        self.aged.expected[made.number] = self.aged.view(made)

    def drop(self) -> list[str]:
        """Drop; return which folders went."""
        return drop_open(installed(self.aged.settings).tables)[1]

    def require_readable(self) -> None:
        """Hold what the open rebuild has beside the tables in use against what it was copied of."""
        found, newest = self._now()
        if found.standing(newest) is Standing.BUILDING:
            pinned = snapshots.stored(installed(self.aged.settings).tables, found.pinned)
            assert self.aged.view(pinned) == self.aged.expected[found.pinned]
            return
        for view in found.views(newest):
            assert self.aged.view(view) == self.aged.expected[view.number], view.number

    def _now(self) -> tuple[Rebuild, Snapshot]:
        settings = self.aged.settings
        return registry.require_current(installed(settings).tables), snapshots.current(
            installed(settings).tables
        )

    def _copied(
        self, rebuild: Rebuild, view: Snapshot, of: Snapshot, crash: str | None
    ) -> Snapshot:
        """Return own tables of a rebuild with the rows of a snapshot, in place of what they had."""
        settings, versions = self.aged.settings, dict(of.tables)
        for declared in VIEW:
            if declared.name not in rebuild.tables:
                continue
            self._writes += 1
            table, source = view.located(declared), of.located(declared)
            version = restore_table(installed(settings).tables, declared, view)
            folder = f"{version + 1:08d}-copy{self._writes}"
            there = storage.sizes(installed(settings).tables, source, of.tables[table.name])
            parts = [
                part
                for path in there
                for part in parquet_files.parts(installed(settings).tables, source, path)
            ]
            made, _ = parquet_files.write_parts(
                installed(settings).tables, table, parts, f"{folder}/a.parquet"
            )
            if crash == "files":
                continue
            old = storage.sizes(installed(settings).tables, table, version)
            added = [made] if made else []
            versions[table.name] = table_log.commit(
                installed(settings).tables, table, version, added, old
            )
        return replace(of, tables=versions, folders=view.folders)
