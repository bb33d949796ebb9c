"""Weeks written by hand, without a JVM: snapshots of who holds, frozen audiences, ledgers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyarrow import parquet

from shardpost.delta import file_statistics, snapshots, storage, table_log
from shardpost.holders.model import view_tables
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES, audience_table
from shardpost.weekly_email.week_state import WeekState
from tests.support.histories import Batch, arrow, country_of, overwrite, put, snapshot, write
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.object_store import folder_of

CLIENTS = ("c0", "c4", "c1", "c2")  # two in shard 0, two in shard 1


def look(settings: Settings, looked_at: datetime) -> None:
    """Commit a snapshot whose inputs were looked at then."""
    number = len(snapshots.list_all(installed(settings).tables)) + 1
    snapshots.commit(installed(settings).tables, replace(snapshot(number, {}), looked_at=looked_at))


def hold(
    settings: Settings, clients: Iterable[str], contacts: Mapping[str, Any], looked_at: datetime
) -> None:
    """Commit a snapshot in which each client holds one position that counts.

    `contacts`: the e-mail address of each client that has a record.
    """
    held = [put(client, client, "NASDAQ") for client in clients]
    write(settings, [Batch(held, [country_of("NASDAQ", "US")])])
    rows = [
        {
            "key": key,
            "seq": 1,
            "snapshot": 1,
            "is_open": True,
            "subscribed": True,
            "name": key,
            "email": email,
        }
        for key, email in contacts.items()
    ]
    seen = snapshots.current(installed(settings).tables)
    contacts_at = overwrite(settings, view_tables.CLIENTS, rows)
    tables = {**seen.tables, view_tables.CLIENTS.name: contacts_at}
    number = seen.number + 1
    snapshots.commit(
        installed(settings).tables, replace(seen, number=number, tables=tables, looked_at=looked_at)
    )


ONE = [dict.fromkeys(("position", "ticker", "amount", "exchange"), "1")]
Held = Sequence[Mapping[str, str | None]]


def freeze(
    settings: Settings,
    week: IsoWeek,
    clients: Iterable[str],
    at: datetime,
    *,
    positions: Mapping[str, Held] | None = None,
    **changed: Any,
) -> FrozenWeek:
    """Freeze a week's audience; `changed` are other columns of its row than usual."""
    weeks = FrozenWeeks(installed(settings).tables)
    version = weeks.version()
    frozen = written(settings, week, clients, at, positions=positions, **changed)
    weeks.commit(frozen, version)
    return frozen


def written(
    settings: Settings,
    week: IsoWeek,
    clients: Iterable[str],
    at: datetime,
    *,
    positions: Mapping[str, Held] | None = None,
    audience: str = "frozen",
    **changed: Any,
) -> FrozenWeek:
    """Write an audience as a freeze does; return the row that the freeze has to commit."""
    rows = [
        {
            "client": client,
            "name": client,
            "email": f"{client}@x.example",
            "has_contact": True,
            "positions": ONE if positions is None else positions[client],
            "week": str(week),
            "shard": partition_of(client, settings.partitions),
        }
        for client in clients
    ]
    folder = f"{week}.{audience}"
    _write_audience(settings, folder, rows)
    given = (str(week), folder, 1, week.end, at, settings.partitions, len(rows), Rule("US"))
    return replace(FrozenWeek(*given), **changed)


def commit_row(settings: Settings, frozen: FrozenWeek) -> None:
    """Commit the row of a week, as if its audience were written."""
    weeks = FrozenWeeks(installed(settings).tables)
    weeks.commit(frozen, weeks.version())


def audience_folder(settings: Settings, week: IsoWeek) -> Path:
    """Return the folder of a frozen week's audience."""
    return folder_of(settings, audience_table(frozen_row(settings, week).audience))


def frozen_row(settings: Settings, week: IsoWeek) -> FrozenWeek:
    """Return the row of a week that is frozen."""
    found = FrozenWeeks(installed(settings).tables).find(week)
    assert found is not None
    return found


def _write_audience(settings: Settings, audience: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write files as a freeze does, one for each shard."""
    tables, table = installed(settings).tables, audience_table(audience)
    version, folder = storage.writable(tables, table).version(), "frozen"
    for shard in sorted({row["shard"] for row in rows}):
        path = folder_of(settings, table) / folder / f"group={shard}"
        path.mkdir(parents=True)
        own = [row for row in rows if row["shard"] == shard]
        parquet.write_table(arrow(AUDIENCES, own), path / "part-0.parquet")
    added = file_statistics.add_actions(tables, table, folder)
    table_log.commit(tables, table, version, added)


def begin(settings: Settings, week: IsoWeek, at: datetime) -> None:
    """Mark the ledger as the first real run of a week does."""
    WeekState(installed(settings), week).mark_start(
        WeekState(installed(settings), week).require_ledger(), at
    )


def record(
    settings: Settings, week: IsoWeek, client: str, state: DeliveryState | None, reason: str = ""
) -> None:
    """Write one entry into the ledger, as a run does."""
    with closing(
        Ledger(installed(settings), week, partition_of(client, settings.partitions))
    ) as ledger:
        ledger.open()
        ledger.write([LedgerEntry(client, state, "<1@x>", reason or None)])


@contextmanager
def mailed_home(
    home: Path, weeks: Iterable[IsoWeek], mailed: Iterable[str]
) -> Iterator[MemoryKafka]:
    """Give a home of two shards; each week's audience are CLIENTS, of whom some were mailed."""
    with memory_kafka(home=home, partitions=2, kafka_timeout=30) as kafka:
        apply_topics(installed(kafka.settings))
        for week in weeks:
            begin(kafka.settings, week, week.end)
            freeze(kafka.settings, week, CLIENTS, week.end)
            for client in mailed:
                record(kafka.settings, week, client, DeliveryState.SENT)
        yield kafka
