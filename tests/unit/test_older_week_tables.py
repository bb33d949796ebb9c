"""The tables of weeks that an older release created get what new ones have, when next written."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import path_of
from shardpost.delta.table import Table
from shardpost.settings import Settings
from shardpost.weekly_email import closed_weeks, frozen_weeks, ledger_guard
from shardpost.weekly_email.closed_weeks import closed_week
from shardpost.weekly_email.ledger_guard import LedgerMark
from shardpost.weekly_email.model.ledger import CLOSED_STATES
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import CLOSED_WEEKS, FROZEN_WEEKS, LEDGER_MARKS

AT = datetime(2026, 11, 23, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Written:
    """A table, how a row of a week is added to it, and how many rows are read."""

    table: Table
    add: Callable[[Settings, IsoWeek], None]
    count: Callable[[Settings], int]


def froze(week: IsoWeek) -> FrozenWeek:
    return FrozenWeek(str(week), 1, week.end, AT, 1, 2, 0, "US")


WRITTEN = (
    Written(
        FROZEN_WEEKS,
        lambda settings, week: frozen_weeks.commit(settings, froze(week)),
        lambda settings: len(frozen_weeks.list_all(settings)),
    ),
    Written(
        LEDGER_MARKS,
        lambda settings, week: ledger_guard.add_mark(
            settings, LedgerMark(str(week), "t", "i", (0,), AT)
        ),
        lambda settings: len(ledger_guard.list_marks(settings)),
    ),
    Written(
        CLOSED_WEEKS,
        lambda settings, week: closed_weeks.add(
            settings, closed_week(week, AT, [dict.fromkeys(CLOSED_STATES, 0)])
        ),
        lambda settings: len(closed_weeks.list_all(settings)),
    ),
)


@pytest.mark.parametrize("written", WRITTEN, ids=lambda one: one.table.name)
@pytest.mark.parametrize("is_older", [True, False])
def test_a_table_of_weeks_has_the_properties(
    tmp_path: Path, written: Written, is_older: bool
) -> None:
    settings = Settings.model_validate({"home": tmp_path})
    path = path_of(settings, written.table)
    if is_older:
        write_deltalake(path, arrow_schema(written.table).empty_table(), mode="ignore")
    for number in range(1, 13):
        written.add(settings, IsoWeek(2026, number))
    assert written.count(settings) == 12
    found = DeltaTable(path).metadata().configuration
    assert table_log.PROPERTIES.items() <= found.items()
    assert [*Path(path, "_delta_log").glob("*.checkpoint.parquet")]
