"""Whether a week is closed: by the table `closed_weeks`, or by the ledger where that was lost.

The records of a closed week were removed from the ledger, and it is never mailed again. Neither
the table's row nor the ledger's record is ever taken back. A sender does not rely on this: it reads
the ledger of its own shard behind its fence (`ledger_topic.Ledger.open`).
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, rows
from shardpost.delta.table_log import VersionExistsError
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings import Settings
from shardpost.settings.values import LEAST_LEDGER_DAYS
from shardpost.weekly_email.ledger_topic import ClosedShard, ShardLedger
from shardpost.weekly_email.model.ledger import CLOSED_STATES, DeliveryState, WeekClosedError
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardCounts
from shardpost.weekly_email.model.week_tables import CLOSED_WEEKS


@dataclass(frozen=True)
class ClosedWeek:
    """One row of `closed_weeks`: how many clients were in which state, by partition.

    `emptied_at` is when the last of its records left the ledger; None before that.
    """

    week: str
    closed_at: datetime
    sent: tuple[int, ...]
    failed: tuple[int, ...]
    unknown: tuple[int, ...]
    suppressed: tuple[int, ...]
    emptied_at: datetime | None = None

    @property
    def explanation(self) -> str:
        """Why the week cannot be mailed and has no ledger records."""
        return (
            f"{self.week} was closed on {self.closed_at:%Y-%m-%d} (SHARDPOST_LEDGER_DAYS): its"
            " delivery records were deleted, and it can never be mailed again"
        )

    @property
    def shards(self) -> list[ShardCounts]:
        """The counts by shard; who was unknown is not kept."""
        columns = {str(state): getattr(self, str(state)) for state in CLOSED_STATES}
        return [
            ShardCounts(shard, **{name: counts[shard] for name, counts in columns.items()})
            for shard in range(len(self.sent))
        ]


def closed_week(week: object, at: datetime, shards: list[dict[DeliveryState, int]]) -> ClosedWeek:
    """Return the row of a week by the counts of its shards."""
    sent, failed, unknown, suppressed = (
        tuple(counts[state] for counts in shards) for state in CLOSED_STATES
    )
    return ClosedWeek(str(week), at, sent, failed, unknown, suppressed)


SCHEMA = arrow_schema(CLOSED_WEEKS)
# More than the runs that write at the same moment.
MOST_CONFLICTS = 20
# Shards that are read in parallel.
MAX_CONCURRENT = 8

log = logging.getLogger(__name__)


def list_all(settings: Settings) -> dict[str, ClosedWeek]:
    """Return {week: its last row} of the table."""
    if not exists(settings, CLOSED_WEEKS):
        return {}
    sql = "SELECT * FROM closed_weeks ORDER BY week, emptied_at NULLS FIRST"
    return {one.week: one for one in _rows(settings, sql)}


def add(settings: Settings, week: ClosedWeek) -> None:
    """Add a row; it is tried again where another run writes at the same time."""
    row = pa.Table.from_pylist([asdict(week)], SCHEMA)
    for _ in range(MOST_CONFLICTS):
        try:
            return _append(settings, row)
        except (CommitFailedError, VersionExistsError) as error:
            log.info("%s: retrying its row in closed_weeks: %s", week.week, error)
    return _append(settings, row)


def _append(settings: Settings, row: pa.Table) -> None:
    write_deltalake(table_log.opened(settings, CLOSED_WEEKS), row, mode="append")


def find(settings: Settings, week: IsoWeek, now: datetime) -> ClosedWeek | None:
    """Return the week as it was closed; None if it is open.

    The ledger is read only of a week that ended so long ago that it may be closed: that takes long.
    """
    if found := list_all(settings).get(str(week)):
        return found
    if now - week.end < timedelta(days=LEAST_LEDGER_DAYS):
        return None
    return _by_ledger(settings, week)


def require_open(settings: Settings, week: IsoWeek, now: datetime) -> None:
    """Refuse a week that is closed."""
    if closed := find(settings, week, now):
        raise WeekClosedError(closed.explanation)


def _by_ledger(settings: Settings, week: IsoWeek) -> ClosedWeek | None:
    """Return the week as the ledger says it; also if one partition alone does."""
    topic = settings.topic("weekly-emails")
    shards = range(partition_counts(settings, [topic])[topic])

    def read(shard: int) -> ClosedShard | None:
        return ShardLedger(settings, week, shard).closed()

    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        found = list(pool.map(read, shards))
    closed = [one.at for one in found if one]
    if not closed:
        return None
    none = dict.fromkeys(CLOSED_STATES, 0)
    return closed_week(week, max(closed), [one.counts if one else none for one in found])


def _rows(settings: Settings, sql: str) -> Iterator[ClosedWeek]:
    for row in rows(settings, sql, {CLOSED_WEEKS: None}):
        yield ClosedWeek(**row | {str(state): tuple(row[str(state)]) for state in CLOSED_STATES})
