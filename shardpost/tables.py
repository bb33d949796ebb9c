"""The tables as values, for pages, notebooks and programs. The names in this module are stable.

Functions read the newest snapshot, or the one whose number they are given; they take settings, by
default those of `SHARDPOST_*` and `.env`. None of them starts a JVM. ShardpostError says what could
not be read: no snapshot yet, one that does not exist or is no longer kept, a missing file.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from shardpost.alerts.model.alert import ALERTS
from shardpost.alerts.model.metrics import MEASUREMENTS
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.delta import snapshots as _snapshots
from shardpost.delta.query import at_snapshot, query
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.errors import UsageError
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.explain import Transition
from shardpost.holders.model.view_tables import REJECTED_RECORDS
from shardpost.holders.position_history import explanation
from shardpost.holders.queries import ask
from shardpost.installation import Installation
from shardpost.rebuilds.model.rebuild import REBUILDS
from shardpost.settings import Settings, load
from shardpost.weekly_email.model.week_tables import (
    AUDIENCES,
    CLOSED_WEEKS,
    FROZEN_WEEKS,
    LEDGER_MARKS,
    MAIL_LOOKS,
    PAUSED_WEEKS,
)

if TYPE_CHECKING:
    from shardpost.dead_letters.model.letter_history import Step

__all__ = [
    "Snapshot",
    "Transition",
    "explain",
    "holders",
    "letters",
    "rejected",
    "snapshot",
    "snapshots",
    "sql",
]

# Tables with commit points of their own: of no snapshot.
OTHERS = (
    *(SNAPSHOTS, AUDIENCES, FROZEN_WEEKS, CLOSED_WEEKS, LEDGER_MARKS, DEAD_LETTERS),
    *(PAUSED_WEEKS, MAIL_LOOKS, REBUILDS, MEASUREMENTS, ALERTS),
)


def snapshots(settings: Settings | None = None) -> list[Snapshot]:
    """Return the snapshots that can be asked (plain values), oldest first; [] before the first."""
    installation = _opened(settings)
    of_weeks = _of_weeks(installation)
    return _snapshots.list_kept(installation.tables, now=datetime.now(UTC), pinned=of_weeks)


def snapshot(number: int | None = None, settings: Settings | None = None) -> Snapshot:
    """Return the snapshot of that number, or the newest one (a plain value)."""
    return _chosen(number, _opened(settings))


def holders(
    client: str | None = None,
    shard: int | None = None,
    as_of: datetime | None = None,
    snapshot: int | None = None,
    settings: Settings | None = None,
) -> dict[str, list[str]]:
    """Return who holds US stock (of SHARDPOST_COUNTRY): {client: position ids}.

    Ids are in the order of share-holders. Of one client or all, of one shard or all; now, or by the
    records with a timestamp before `as_of`, which has a zone. Clients that hold nothing are left
    out. UsageError for a shard that does not exist, a time without a zone, and one outside the
    years 1678 to 2261.
    """
    if as_of is not None and as_of.tzinfo is None:
        raise UsageError(f"as of {as_of.isoformat()}: expected a time with its zone")
    installation, asked = _opened(settings), HoldersQuery(client, shard, as_of)
    return query_holders(installation.tables, _chosen(snapshot, installation), asked)


def rejected(snapshot: int | None = None, settings: Settings | None = None) -> pa.Table:
    """Return all undecodable records, whole and with their reasons, as an Arrow table.

    Its columns are those of `rejected_records` (docs/tables.md), in the order of topic, partition
    and offset.
    """
    installation = _opened(settings)
    sql = 'SELECT * FROM rejected_records ORDER BY topic, "partition", "offset"'
    chosen = at_snapshot(_chosen(snapshot, installation), REJECTED_RECORDS)
    return query(installation.tables, sql, chosen)


def explain(
    client: str,
    position: str | None = None,
    snapshot: int | None = None,
    settings: Settings | None = None,
) -> list[Transition]:
    """Return which records put and took a client's positions, or that one (plain values).

    By position, then in order; [] if no record gave the client such a position.
    """
    installation = _opened(settings)
    return explanation(installation, _chosen(snapshot, installation), client, position)


def letters(
    settings: Settings | None = None, *, closed_since: datetime | None = None
) -> "list[Step]":
    """Return the latest step of each dead letter (plain values), oldest first.

    With `closed_since` those that wait or are parked, and of all others those that were resolved
    since then: which does not take longer for the many that were resolved before.

    By the table `dead_letters` and what its topics have after it: so it needs Kafka, and no
    snapshot. A step's `as_json()` is what `letters list --json` prints.
    """
    from shardpost.dead_letters.listed_letters import current_letters  # with Kafka's client

    found = current_letters(_opened(settings), closed_since=closed_since)
    return sorted(found.values(), key=lambda step: (step.at, step.id))


def sql(
    statement: str, snapshot: int | None = None, settings: Settings | None = None
) -> pa.RecordBatchReader:
    """Return what one query in SQL finds in the tables (docs/tables.md), each as it is at once.

    Those of OTHERS are as they are now, but `snapshots`, which ends with the one that is asked. The
    dialect is DataFusion's. The reader has the rows batch by batch, or all by `read_all()`.
    Nothing is written, and nothing but the tables is read. UsageError for what is
    no query, or names what is not there; ShardpostError, while it is read, for one that fails.
    """
    from shardpost.weekly_email.frozen_weeks import FrozenWeeks

    installation = _opened(settings)
    tables, chosen = installation.tables, _chosen(snapshot, installation)
    return ask(tables, chosen, statement, OTHERS, {AUDIENCES: FrozenWeeks(tables).audience_tables})


def _chosen(number: int | None, installation: Installation) -> Snapshot:
    if number is None:
        return _snapshots.current(installation.tables)
    return _snapshots.get(
        installation.tables, number, now=datetime.now(UTC), pinned=lambda: _of_weeks(installation)
    )


def _of_weeks(installation: Installation) -> set[int]:
    """Return the snapshots from which a week's audience was frozen, and which are kept for that."""
    # Who asks for a newer one does without.
    from shardpost.weekly_email.frozen_weeks import FrozenWeeks

    return {one.snapshot for one in FrozenWeeks(installation.tables).with_audience()}


def _opened(settings: Settings | None) -> Installation:
    return Installation(settings or load())
