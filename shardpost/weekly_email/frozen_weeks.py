"""Weeks whose audience is frozen, and their audiences, through deltalake: no JVM.

The row of a week is its commit point. It stays when the audience is erased, and says so: the week
is not frozen again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from shardpost.delta.arrow_schema import arrow_rows
from shardpost.delta.object_store import Tables
from shardpost.delta.query import query, rows, select, stream
from shardpost.delta.table import Table, text_literal
from shardpost.errors import ShardpostError
from shardpost.kafka.partitioning import partition_of
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import FROZEN_WEEKS, audience_table

RECIPIENTS = "recipients"
WITH_ADDRESS = "recipients with an address"


class FrozenWeeks:
    """The table `frozen_weeks`, and the tables with the audiences of the weeks that it names."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def list_all(self) -> list[FrozenWeek]:
        """Return all frozen weeks, the newest week first."""
        return select(self._tables, FROZEN_WEEKS, FrozenWeek, "ORDER BY week DESC")

    def find(self, week: IsoWeek) -> FrozenWeek | None:
        """Return the week as it was frozen, or None if it is not frozen."""
        found = select(self._tables, FROZEN_WEEKS, FrozenWeek, f"WHERE week = '{week}'")
        return next(iter(found), None)

    def with_audience(self, erased_since: datetime | None = None) -> list[FrozenWeek]:
        """Return the weeks that have their audience, or had it at that time, newest week first.

        The snapshots that they are of are kept, and may be read.
        """
        return [
            frozen
            for frozen in self.list_all()
            if frozen.audience_erased_at is None
            or (erased_since is not None and frozen.audience_erased_at > erased_since)
        ]

    def audience_tables(self) -> list[Table]:
        """Return the tables of the audiences that are there, the newest week first."""
        return [audience_table(frozen.week) for frozen in self.with_audience()]

    def require_audience(self, week: IsoWeek) -> None:
        """Refuse a week whose audience was erased since a run read its row.

        To be called behind the locks of the run: from then on the audience stays as it is.
        """
        if now := self.find(week):
            now.require_audience()

    def commit(self, frozen: FrozenWeek) -> None:
        """Insert the week's row; ShardpostError if the week is frozen already.

        LostLockError behind a lock that another run has taken over: it writes this audience anew.
        """
        source = arrow_rows(FROZEN_WEEKS, [frozen])
        self._tables.require_held()
        try:
            done = (
                self._writable()
                .merge(source, "t.week = s.week", source_alias="s", target_alias="t")
                .when_not_matched_insert_all()
                .execute()
            )
        except CommitFailedError as error:
            raise ShardpostError(
                f"week {frozen.week}: another run is freezing it: {error}"
            ) from None
        if done["num_target_rows_inserted"] != 1:
            raise ShardpostError(f"week {frozen.week} was frozen by another run: run again")

    def mark_erased(self, week: IsoWeek, at: datetime) -> None:
        """Write into a week's row that its audience is erased from now on; at most once."""
        time = f"CAST('{at.astimezone(UTC).isoformat()}' AS TIMESTAMP)"
        not_yet = f"week = '{week}' AND audience_erased_at IS NULL"
        try:
            self._writable().update(predicate=not_yet, updates={"audience_erased_at": time})
        except CommitFailedError as error:
            raise ShardpostError(f"week {week}: another run writes frozen_weeks: {error}") from None

    def counts(self, week: object) -> dict[str, int]:
        """Return how many clients a week's audience has: all, and those with an address."""
        counts = f'count(*) AS "{RECIPIENTS}", count(email) AS "{WITH_ADDRESS}"'
        sql = f"SELECT {counts} FROM audiences"  # noqa: S608 - our own
        return rows(self._tables, sql, {audience_table(week): None})[0]

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
        return stream(self._tables, sql, {audience_table(frozen.week): None})

    def _audience(self, frozen: FrozenWeek, columns: str, condition: str) -> pa.Table:
        sql = f"SELECT {columns} FROM audiences WHERE {condition}"  # noqa: S608 - our own
        return query(self._tables, sql, {audience_table(frozen.week): None})

    def _writable(self) -> DeltaTable:
        from shardpost.delta import table_log  # who only reads does without Parquet

        return table_log.opened(self._tables, FROZEN_WEEKS)
