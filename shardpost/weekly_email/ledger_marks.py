"""The table `ledger_marks`, through deltalake: no JVM. Rows are only added."""

import logging
from dataclasses import asdict, replace
from datetime import timedelta

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, rows
from shardpost.delta.table_log import VersionExistsError
from shardpost.settings import Settings
from shardpost.weekly_email.model.ledger_mark import LedgerMark
from shardpost.weekly_email.model.tables import LEDGER_MARKS

SCHEMA = arrow_schema(LEDGER_MARKS)
RESOLUTION = timedelta(microseconds=1)
# More than the runs that begin at the same moment.
MOST_CONFLICTS = 20

log = logging.getLogger(__name__)


def list_all(settings: Settings) -> list[LedgerMark]:
    """Return all marks, oldest first."""
    if not exists(settings, LEDGER_MARKS):
        return []
    sql = "SELECT * FROM ledger_marks ORDER BY marked_at"
    found = rows(settings, sql, {LEDGER_MARKS: None})
    return [LedgerMark(**row | {"ends": tuple(row["ends"])}) for row in found]


def add(settings: Settings, mark: LedgerMark) -> None:
    """Add a mark, as the newest: of two machines, one may have a clock that is behind.

    It is tried again where other runs create the table at the same time.
    """
    for _ in range(MOST_CONFLICTS):
        try:
            return _append(settings, mark)
        except (CommitFailedError, VersionExistsError) as error:
            log.info("%s: its mark is written again: %s", mark.week, error)
    return _append(settings, mark)


def _append(settings: Settings, mark: LedgerMark) -> None:
    known = list_all(settings)
    if known:
        mark = replace(mark, marked_at=max(mark.marked_at, known[-1].marked_at + RESOLUTION))
    table = table_log.opened(settings, LEDGER_MARKS)
    write_deltalake(table, pa.Table.from_pylist([asdict(mark)], SCHEMA), mode="append")
