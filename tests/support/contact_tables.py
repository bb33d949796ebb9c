"""Tables with the contact of one client wherever it may be, as compactions write them; no JVM.

`WHO` is the client. What belongs to it, and nothing else, has the text of `NAME_OF_WHO`.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from pyarrow import parquet

from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import CLIENT_EVENTS, CLIENTS, REJECTED_RECORDS, VIEW
from shardpost.maintenance.erasure import ErasedClient, ErasureRequest, erase
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support.histories import arrow
from tests.support.installed import installed
from tests.support.object_store import folder_of

# Of a plane of characters that deltalake misreads where a log has them as escapes.
WHO, OTHER = "\U00020bb7\u7530", "c6"
NAME_OF_WHO = "quine"
AT = datetime(2026, 11, 16, tzinfo=UTC)
ROWS_OF_WHO = {"client_events": 3, "clients": 1, "rejected_records": 2}
Row = dict[str, Any]


def _event(key: str, seq: int, number: int, name: str | None, kind: str = "upsert") -> Row:
    address = name and f"{name}@x.example"
    contact = {"name": name, "email": address, "subscribed": True if name else None}
    value = name and f'{{"Email": "{address}"}}'.encode()
    place = {"partition": 0, "offset": seq, "timestamp": AT, "seq": seq, "snapshot": number}
    return {"key": key, **place, "kind": kind, "value": value, **contact}


def _rejected(key: str, seq: int, number: int, name: str) -> Row:
    reason = f'Email: expected an address, found "{name}"'
    headers = [{"key": "by", "value": name.encode()}]
    row = _event(key, seq, number, None, "rejected")
    return row | {"reason": reason, "headers": headers, "value": name.encode()}


def _latest(row: Row) -> Row:
    names = ("key", "partition", "offset", "timestamp", "seq", "snapshot", "name", "email")
    return {name: row[name] for name in names} | {"is_open": True, "subscribed": True}


def _whole(row: Row, topic: str, key: bytes, **more: Any) -> Row:
    names = ("partition", "offset", "timestamp", "value", "headers", "reason", "snapshot")
    return {name: row[name] for name in names} | {"topic": topic, "key": key} | more


FIRST = [_event(WHO, 1, 1, f"{NAME_OF_WHO}1"), _event(OTHER, 2, 1, "bob")]
BAD = _rejected(WHO, 3, 2, f"{NAME_OF_WHO}3")
SECOND = [_event(WHO, 4, 2, f"{NAME_OF_WHO}2"), BAD, _event(OTHER, 5, 2, "bob")]
FAR = [_event("z1", 6, 2, "zoe"), _event("z2", 7, 2, "zed")]
BY_RETRY = _rejected(WHO, 8, 2, f"{NAME_OF_WHO}8")
OTHERS = _rejected(OTHER, 9, 2, "bob")


def rejected_rows(settings: Settings) -> list[Row]:
    """Return records that were rejected: by both topics, by a retry, of another client."""
    clients, retries = settings.topic("clients"), settings.topic("retries")
    origin = [{"key": "origin-topic", "value": clients.encode()}]
    return [
        _whole(BAD, clients, WHO.encode()),
        _whole(BY_RETRY, retries, WHO.encode(), headers=[*BY_RETRY["headers"], *origin]),
        _whole(OTHERS, clients, OTHER.encode()),
        # A position whose id is the client's.
        _whole(OTHERS, settings.topic("positions"), WHO.encode()),
    ]


def write(settings: Settings, *, folded: bool, older: bool = False) -> Snapshot:
    """Commit two snapshots; `clients` has all, or is folded up to the first. Return the second.

    With `older` their logs have bounds of contacts, and escapes, as an older release wrote them.
    """
    for table in VIEW:
        storage.create(installed(settings).tables, table, 90)
    versions = {table.name: 0 for table in VIEW}

    def append(table: Table, files: list[list[Row]], *, fold: bool = False) -> None:
        version = versions[table.name]
        folder = f"{version + 1:08d}-test-{version}"
        written = replace(table, contacts=()) if older else table
        made = [
            parquet_files.write(
                installed(settings).tables, written, arrow(table, rows), f"{folder}/{n}.parquet"
            )
            for n, rows in enumerate(files)
        ]
        if older:
            made = [replace(one, stats=json.dumps(json.loads(one.stats))) for one in made]
        old = storage.sizes(installed(settings).tables, table, version) if fold else ()
        versions[table.name] = table_log.commit(
            installed(settings).tables, table, version, made, old
        )

    def commit(number: int, up_to: dict[str, int]) -> Snapshot:
        ends = {settings.topic(name): {0: 10} for name in ("positions", "clients", "exchanges")}
        made = Snapshot(
            *(number, AT, AT, ends, dict(versions), Counts(rejected=4 if number > 1 else 0)),
            *(Rule("US"), settings.partitions, "test", f"run{number}"),
            folded=up_to,
        )
        snapshots.commit(installed(settings).tables, made)
        return made

    append(CLIENT_EVENTS, [FIRST])
    append(CLIENTS, [[_latest(row) for row in FIRST]])
    commit(1, {})
    append(CLIENT_EVENTS, [SECOND, FAR])
    append(REJECTED_RECORDS, [rejected_rows(settings)])
    if not folded:
        return commit(2, {CLIENTS.name: 1})
    latest = [SECOND[0], SECOND[2], *FAR]
    append(CLIENTS, [[_latest(row) for row in latest]], fold=True)
    return commit(2, {})


def erased(
    settings: Settings, client: str = WHO, *, dry_run: bool = False, now: datetime | None = None
) -> ErasedClient:
    """Erase a client, as the command does."""
    request = ErasureRequest(client, "anna", "it asked for it", now or datetime.now(UTC))
    return erase(installed(settings), request, dry_run=dry_run)


def rows_in(settings: Settings, view: Snapshot, *tables: Table) -> list[Row]:
    """Return all rows of tables in a view."""
    found = (
        rows(installed(settings).tables, f"SELECT * FROM {table.name}", at_snapshot(view, table))  # noqa: S608
        for table in tables
    )
    return [*chain.from_iterable(found)]


def on_disk(settings: Settings, *tables: Table) -> str:
    """Return all values in the files of tables, whatever version they are of, and their logs."""
    found: list[Any] = []
    for table in tables:
        folder = folder_of(settings, table)
        files = map(parquet.ParquetFile, folder.rglob("*.parquet"))
        found += [file.read().to_pylist() for file in files]
        found += [file.read_text() for file in folder.rglob("*.json")]
    return str(found)
