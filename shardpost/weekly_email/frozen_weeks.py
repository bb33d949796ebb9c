"""Frozen weeks and their audiences, through deltalake without a JVM.

The row of a week is its commit point and names the folder of its audience: each freeze writes a
folder of its own, and folders without a row are never read. When the audience is erased, the row is
kept and marked, so that the week is not frozen again.

A row is committed as exactly one version of the table, chosen before its audience is written.
Removing folders without a row first commits a version of its own, so that no freeze that started
earlier can still name one of them, even if its lock was taken over.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from shardpost.delta import storage, stored_files, table_log
from shardpost.delta.arrow_schema import arrow_rows
from shardpost.delta.query import query, rows, select, stream
from shardpost.delta.table import Table, text_literal
from shardpost.errors import ShardpostError
from shardpost.kafka.records import partition_of
from shardpost.logs import step
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES, FROZEN_WEEKS, audience_table

RECIPIENTS = "recipients"
WITH_ADDRESS = "recipients with an address"


class FrozenWeeks:
    """The table `frozen_weeks` and the audience tables of its weeks."""

    def __init__(self, tables: storage.Tables) -> None:
        self._tables = tables

    def list_all(self) -> list[FrozenWeek]:
        """Return all frozen weeks, the newest week first."""
        return select(self._tables, FROZEN_WEEKS, FrozenWeek, "ORDER BY week DESC")

    def find(self, week: IsoWeek) -> FrozenWeek | None:
        """Return the week as it was frozen, or None if it is not frozen."""
        found = select(self._tables, FROZEN_WEEKS, FrozenWeek, f"WHERE week = '{week}'")
        return next(iter(found), None)

    def with_audience(self, erased_since: datetime | None = None) -> list[FrozenWeek]:
        """Return the weeks whose audience and snapshot are kept now, or were then, newest first."""
        return [
            frozen
            for frozen in self.list_all()
            if frozen.audience_erased_at is None
            or (erased_since is not None and frozen.audience_erased_at > erased_since)
        ]

    def audience_tables(self) -> list[Table]:
        """Return the existing audience tables, newest week first."""
        return [audience_table(frozen.audience) for frozen in self.with_audience()]

    def unnamed(self) -> list[str]:
        """Return audience folders without a week, or whose erasure has started."""
        # Listed before the rows are read: a row is written after its folder.
        there = {*stored_files.folder_names(self._tables, AUDIENCES)}
        return sorted(there - {frozen.audience for frozen in self.with_audience()})

    def remove_unnamed(self) -> None:
        """Remove these folders, behind the lock of freezes."""
        version = self.version()
        if names := self.unnamed():
            removal = {"audiences-removed": version}
            table_log.commit(self._tables, FROZEN_WEEKS, version, (), app_transactions=removal)
        for name in names:
            week, _, _ = name.partition(".")
            step(f"remove {week}")
            stored_files.delete_folder(self._tables, audience_table(name))
            step(f"removed {week}")

    def version(self) -> int:
        """Return the newest version of the table, creating it if necessary."""
        return storage.writable(self._tables, FROZEN_WEEKS).version()

    def commit(self, frozen: FrozenWeek, version: int) -> None:
        """Insert the week's row as the version after that one.

        That version was read before the audience was written. Raises ShardpostError if the week is
        already frozen or another run wrote that version, and LostLockError if another run took over
        the lock.
        """
        source, once = arrow_rows(FROZEN_WEEKS, [frozen]), CommitProperties(max_commit_retries=0)
        since = storage.opened(self._tables, FROZEN_WEEKS, version)
        self._tables.require_held()
        try:
            done = (
                since.merge(source, "t.week = s.week", "s", "t", commit_properties=once)
                .when_not_matched_insert_all()
                .execute()
            )
        except CommitFailedError as error:
            raise ShardpostError(
                f"week {frozen.week}: another run froze a week or removed audiences after this"
                f" run started; run again: {error}"
            ) from None
        if done["num_target_rows_inserted"] != 1:
            raise ShardpostError(f"week {frozen.week} was frozen by another run: run again")

    def mark_erased(self, week: IsoWeek, at: datetime) -> None:
        """Mark in a week's row that its audience is erased; at most once."""
        time = f"CAST('{at.astimezone(UTC).isoformat()}' AS TIMESTAMP)"
        not_yet = f"week = '{week}' AND audience_erased_at IS NULL"
        table = storage.writable(self._tables, FROZEN_WEEKS)
        try:
            table.update(predicate=not_yet, updates={"audience_erased_at": time})
        except CommitFailedError as error:
            raise ShardpostError(
                f"week {week}: another run is writing frozen_weeks: {error}"
            ) from None

    def counts(self, audience: str) -> dict[str, int]:
        """Return the number of clients in an audience, in total and with an address."""
        counts = f'count(*) AS "{RECIPIENTS}", count(email) AS "{WITH_ADDRESS}"'
        sql = f"SELECT {counts} FROM audiences"  # noqa: S608 - our own
        return rows(self._tables, sql, {audience_table(audience): None})[0]

    def clients(self, frozen: FrozenWeek, shard: int) -> list[str]:
        """Return the audience of one shard."""
        audience = self._audience(frozen, "client", f"shard = {shard}")
        clients: list[str] = audience.column("client").to_pylist()
        return clients

    def member(self, frozen: FrozenWeek, client: str) -> dict[str, Any] | None:
        """Return a client's row of the audience, or None if it is not in it."""
        own = f"shard = {partition_of(client, frozen.shards)} AND client = {text_literal(client)}"
        members = self._audience(frozen, "*", own).to_pylist()
        return members[0] if members else None

    def positions(self, frozen: FrozenWeek) -> Iterator[pa.RecordBatch]:
        """Yield (client, positions) of the audience; positions are as in the table."""
        sql = "SELECT client, positions FROM audiences"
        return stream(self._tables, sql, {audience_table(frozen.audience): None})

    def _audience(self, frozen: FrozenWeek, columns: str, condition: str) -> pa.Table:
        sql = f"SELECT {columns} FROM audiences WHERE {condition}"  # noqa: S608 - our own
        return query(self._tables, sql, {audience_table(frozen.audience): None})
