"""Weeks whose audience is frozen, through deltalake: no JVM.

The row of a week is its commit point. It stays when the audience is erased, and says so: the week
is not frozen again.
"""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, path_of, query, rows
from shardpost.delta.table import text_literal
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES, FROZEN_WEEKS

SCHEMA = arrow_schema(FROZEN_WEEKS)


def find(settings: Settings, week: IsoWeek) -> FrozenWeek | None:
    """Return the week as it was frozen, or None if it is not frozen."""
    if not exists(settings, FROZEN_WEEKS):
        return None
    sql = f"SELECT * FROM frozen_weeks WHERE week = '{week}'"  # noqa: S608 - an IsoWeek
    found = rows(settings, sql, {FROZEN_WEEKS: None})
    return FrozenWeek(**found[0]) if found else None


def newest(settings: Settings) -> FrozenWeek | None:
    """Return the week that was frozen last, or None before the first."""
    if not exists(settings, FROZEN_WEEKS):
        return None
    sql = "SELECT * FROM frozen_weeks ORDER BY frozen_at DESC LIMIT 1"
    found = rows(settings, sql, {FROZEN_WEEKS: None})
    return FrozenWeek(**found[0]) if found else None


def newest_before(settings: Settings, week: IsoWeek) -> FrozenWeek | None:
    """Return the last week before a week that has its audience, or None if there is none."""
    # The form 2026-W47 sorts as the weeks do.
    before = (one for one in list_all(settings) if one.week < str(week))
    return next((one for one in before if one.audience_erased_at is None), None)


def list_all(settings: Settings) -> list[FrozenWeek]:
    """Return all frozen weeks, the newest week first."""
    if not exists(settings, FROZEN_WEEKS):
        return []
    sql = "SELECT * FROM frozen_weeks ORDER BY week DESC"
    return [FrozenWeek(**row) for row in rows(settings, sql, {FROZEN_WEEKS: None})]


def with_audience(settings: Settings, erased_since: datetime | None = None) -> list[FrozenWeek]:
    """Return the weeks that have their audience, or had it at that time, the newest week first.

    The snapshots that they are of are kept, and may be read.
    """
    weeks = list_all(settings)
    return [
        one
        for one in weeks
        if one.audience_erased_at is None
        or (erased_since is not None and one.audience_erased_at > erased_since)
    ]


def require_audience(settings: Settings, week: IsoWeek, known: FrozenWeek | None) -> None:
    """Refuse a week whose audience was erased, or written anew, since a run read its row.

    To be called behind the locks of the run: from then on the audience stays as it is.
    """
    found = find(settings, week)
    if found is None or known is None:
        return
    found.require_audience()
    if found.audience_version != known.audience_version:
        raise ShardpostError(
            f"the audience of {week} was written anew since this run began, without a client that"
            " was erased: run again"
        )


def commit(settings: Settings, frozen: FrozenWeek) -> None:
    """Insert the week's row; ShardpostError if the week is frozen already."""
    source = pa.Table.from_pylist([asdict(frozen)], SCHEMA)
    try:
        done = (
            _table(settings)
            .merge(source, "t.week = s.week", source_alias="s", target_alias="t")
            .when_not_matched_insert_all()
            .execute()
        )
    except CommitFailedError as error:
        raise ShardpostError(f"week {frozen.week}: another run is freezing it: {error}") from None
    if done["num_target_rows_inserted"] != 1:
        raise ShardpostError(f"week {frozen.week} was frozen by another run: run again")


def mark_erased(settings: Settings, week: IsoWeek, at: datetime) -> None:
    """Write into a week's row that its audience is erased from now on; at most once."""
    text = at.astimezone(UTC).isoformat()
    try:
        _table(settings).update(
            predicate=f"week = '{week}' AND audience_erased_at IS NULL",
            updates={"audience_erased_at": f"CAST('{text}' AS TIMESTAMP)"},
        )
    except CommitFailedError as error:
        raise ShardpostError(f"week {week}: another run writes frozen_weeks: {error}") from None


def repoint(settings: Settings, week: IsoWeek, version: int) -> None:
    """Point a week's row to another version of `audiences`, which has the files of now."""
    try:
        _table(settings).update(
            predicate=f"week = '{week}'", updates={"audience_version": str(version)}
        )
    except CommitFailedError as error:
        raise ShardpostError(f"week {week}: another run writes frozen_weeks: {error}") from None


def _table(settings: Settings) -> DeltaTable:
    """Return the table, to be written to."""
    from shardpost.delta import table_log  # who only reads does without Parquet

    return table_log.opened(settings, FROZEN_WEEKS)


def audience_version(settings: Settings) -> int:
    """Return the newest version of `audiences`."""
    return DeltaTable(path_of(settings, AUDIENCES)).version()


def recipients(settings: Settings, week: IsoWeek, version: int) -> int:
    """Return how many clients the week's audience has at a version of `audiences`."""
    sql = f"SELECT count(*) AS clients FROM audiences WHERE week = '{week}'"  # noqa: S608 - an IsoWeek
    return int(rows(settings, sql, {AUDIENCES: version})[0]["clients"])


def clients(settings: Settings, frozen: FrozenWeek, shard: int) -> list[str]:
    """Return the audience of one shard."""
    sql = f"SELECT client FROM audiences WHERE week = '{frozen.week}' AND shard = {shard}"  # noqa: S608
    table = query(settings, sql, {AUDIENCES: frozen.audience_version})
    found: list[str] = table.column("client").to_pylist()
    return found


def member(settings: Settings, frozen: FrozenWeek, client: str) -> dict[str, Any] | None:
    """Return a client's row of the audience, or None if it is not in it."""
    sql = (
        f"SELECT * FROM audiences WHERE week = '{frozen.week}' AND client = {text_literal(client)}"  # noqa: S608
    )
    found = rows(settings, sql, {AUDIENCES: frozen.audience_version})
    return found[0] if found else None
