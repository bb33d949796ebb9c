"""Whether a week is closed: by the table `closed_weeks`, or by the ledger where that was lost.

The records of a closed week were removed from the ledger, and it is never mailed again. Neither
the table's row nor the ledger's record is ever taken back. A sender does not rely on this: it reads
the ledger of its own shard behind its fence (`ledger_topic.Ledger.open`).
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from shardpost.delta import table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import select
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings.values import LEAST_LEDGER_DAYS
from shardpost.weekly_email.ledger_topic import SHARDS_READ_AT_ONCE, ShardLedger
from shardpost.weekly_email.model.ledger import CLOSED_STATES, DeliveryState, WeekClosedError
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import CLOSED_WEEKS, ClosedWeek


def closed_week(week: object, at: datetime, shards: list[dict[DeliveryState, int]]) -> ClosedWeek:
    """Return the row of a week by the counts of its shards."""
    sent, failed, unknown, suppressed = (
        tuple(counts[state] for counts in shards) for state in CLOSED_STATES
    )
    return ClosedWeek(str(week), at, sent, failed, unknown, suppressed)


def list_all(tables: Tables) -> dict[str, ClosedWeek]:
    """Return {week: its last row} of the table."""
    in_order = "ORDER BY week, emptied_at NULLS FIRST"
    return {row.week: row for row in select(tables, CLOSED_WEEKS, ClosedWeek, in_order)}


def add(tables: Tables, week: ClosedWeek) -> None:
    """Add a row; it is tried again where another run writes at the same time."""
    table_log.append(tables, CLOSED_WEEKS, lambda: week)


def find(installation: Installation, week: IsoWeek, now: datetime) -> ClosedWeek | None:
    """Return the week as it was closed; None if it is open.

    The ledger is read only of a week that ended so long ago that it may be closed: that takes long.
    """
    if found := list_all(installation.tables).get(str(week)):
        return found
    if now - week.end < timedelta(days=LEAST_LEDGER_DAYS):
        return None
    return _by_ledger(installation.kafka, week)


def require_open(installation: Installation, week: IsoWeek, now: datetime) -> None:
    """Refuse a week that is closed."""
    if closed := find(installation, week, now):
        raise WeekClosedError(closed.explanation)


def _by_ledger(kafka: Kafka, week: IsoWeek) -> ClosedWeek | None:
    """Return the week as the ledger says it; also if one partition alone does."""
    topic = kafka.topic("weekly-emails")
    shards = range(partition_counts(kafka, [topic])[topic])
    ledgers = [ShardLedger(kafka, week, shard) for shard in shards]
    with ThreadPoolExecutor(SHARDS_READ_AT_ONCE) as pool:
        found = list(pool.map(ShardLedger.closed, ledgers))
    closed = [one.at for one in found if one]
    if not closed:
        return None
    none = dict.fromkeys(CLOSED_STATES, 0)
    return closed_week(week, max(closed), [one.counts if one else none for one in found])
