"""Many tiny compactions without Spark, a quarter of an hour apart by a clock of their own.

Their records go to the topic, the tables are the product's own (bench/arrow_tables.py), and what a
run did is published once for many of them. Only the decoding of a few records, and what they change
of the holders, is plain Python here. Interrupted and started again, they go on where they were.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import deltalake
import pyarrow as pa
from deltalake import DeltaTable

from bench import kafka, stream
from bench.aging import APART
from bench.arrow_tables import ArrowTables
from bench.plain_fold import Holdings
from bench.stream import Record
from shardpost.delta import snapshots, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.snapshot import Snapshot
from shardpost.holders import publishing
from shardpost.holders.folding import Folding, restore_table
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import Numbering
from shardpost.holders.model.view_tables import (
    LAYERED,
    POSITION_EVENTS,
    RETRY_NAMES,
    SHARE_HOLDERS_CHANGES,
    VIEW,
    FoldingRule,
)
from shardpost.holders.model.who_holds import position_sort_key
from shardpost.kafka import offsets
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from tests.support.installed import installed

# So many runs' records are produced at once, and then their files get the time of their clock.
TOGETHER = 84
# A file's time may be so much before that of the clock (seconds).
CLOCK_TICK = 0.1


class _KeptOpen:
    """`DeltaTable` for a table's only writer: one that was opened is given again as it is now."""

    def __init__(self) -> None:
        self._tables: dict[str, DeltaTable] = {}

    def __call__(
        self, path: str, version: int | None = None, storage_options: None = None
    ) -> DeltaTable:
        found = self._tables.get(path)
        if found is not None and version != found.version():
            found.update_incremental()
        if found is None or version not in (None, found.version()):
            found = self._tables[path] = DeltaTable(path, version=version)
        return found

    def is_deltatable(self, path: str, storage_options: None = None) -> bool:
        """Tell whether there is such a table; tables are never removed."""
        return path in self._tables or DeltaTable.is_deltatable(path)


class TinyCompactions:
    """Goes on from the newest snapshot of a home whose topic began with `size` records."""

    def __init__(self, settings: Settings, size: int, more: int, began: datetime) -> None:
        self._settings, self._more, self._began = settings, more, began
        self._topic = settings.topic("positions")
        last = snapshots.current(installed(settings).tables)
        versions = {
            table.name: restore_table(installed(settings).tables, table, last) for table in VIEW
        }
        self._last = replace(last, tables=versions)
        read = sum(last.end_offsets[self._topic].values())
        known = stream.records(size, more=read - size)
        self._records = stream.records(size, read, 1 << 60)
        self._opened = _KeptOpen()
        self._holdings = Holdings()
        self._holdings.apply(known)
        if self._holdings.counts != replace(last.counts, rejected=0):
            raise RuntimeError(
                f"snapshot {last.number}: expected {self._holdings.counts}, found {last.counts}"
            )

    def run(self, count: int) -> Snapshot:
        """Compact so many times, publish, and return the last snapshot."""
        for first in range(0, count, TOGETHER):
            self._run_together(min(TOGETHER, count - first))
        publishing.publish(installed(self._settings), self._last)
        return self._last

    def _run_together(self, count: int) -> None:
        ends = dict(self._last.end_offsets[self._topic])
        runs = [[*islice(self._records, self._more)] for _ in range(count)]
        placed = [[*_placed(records, ends)] for records in runs]
        self._produce(placed, ends)
        start = time.time()
        for records, rows in zip(runs, placed, strict=True):
            self._compact(records, rows)
        for table in os.scandir(self._settings.tables_root):
            _set_times(table.path, start - CLOCK_TICK, self._last.committed_at.timestamp())

    def _produce(self, runs: list[list["Placed"]], ends: Mapping[int, int]) -> None:
        """Put records into the topic, but for those that an interrupted run has put there."""
        there = self._ends()
        missing = (one for rows in runs for one in rows if one.offset >= there[one.partition])
        kafka.produce(self._settings, self._topic, (one.record for one in missing))
        if (found := self._ends()) != ends:
            raise RuntimeError(f"{self._topic}: expected to end at {ends}, found {found}")

    def _ends(self) -> dict[int, int]:
        wanted = {self._topic: kafka.PARTITIONS}
        marks = offsets.watermarks(installed(self._settings).kafka, wanted, committed=True)[
            self._topic
        ]
        return {partition: high for partition, (_, high) in marks.items()}

    def _compact(self, records: list[Record], placed: list["Placed"]) -> None:
        last = self._last
        at = self._began + last.number * APART
        tables = ArrowTables(self._settings, last)
        clock = SimpleNamespace(time=at.timestamp)
        with (
            patch.object(table_log, "time", clock),
            patch.object(deltalake, "DeltaTable", self._opened),
        ):
            ends = _ends_after(last, self._topic, placed)
            numbering = Numbering.of(0, last.end_offsets[self._topic], ends[self._topic])
            tables.append(POSITION_EVENTS, _events(placed, tables.number, numbering))
            touched = self._holdings.apply(records)
            tables.append(SHARE_HOLDERS_CHANGES, self._holders(touched, tables.number))
            counts = replace(self._holdings.counts, rejected=last.counts.rejected)
            made = replace(
                last,
                number=tables.number,
                committed_at=at,
                looked_at=max(last.looked_at, at),
                end_offsets=ends,
                tables=tables.versions,
                folded=tables.folded,
                counts=counts,
                run=tables.run,
            )
            snapshots.commit(installed(self._settings).tables, made)
        # The rule of folding asks for sizes, by two queries a table: here, runs decide.
        if tables.layer_runs() >= FoldingRule.runs:
            names = [table.name for table in LAYERED]
            made = Folding(tables.where, made).fold(at, names)
            snapshots.update_looked_at(tables.where, made)
        self._last = made

    def _holders(self, clients: Iterable[str], number: int) -> pa.Table:
        rows = [
            {
                "client": client,
                "positions": sorted(self._holdings.held[client], key=position_sort_key),
                "snapshot": number,
                "shard": partition_of(client, self._last.shards),
            }
            for client in sorted(clients)
        ]
        return pa.Table.from_pylist(rows, arrow_schema(SHARE_HOLDERS_CHANGES))


@dataclass(frozen=True)
class Placed:
    """A record where Kafka puts it."""

    record: Record
    partition: int
    offset: int


def _placed(records: Iterable[Record], ends: dict[int, int]) -> Iterator[Placed]:
    """Yield records with their coordinates; `ends` are where they begin, and then end."""
    for record in records:
        partition = partition_of(record[0], kafka.PARTITIONS)
        yield Placed(record, partition, ends[partition])
        ends[partition] += 1


def _ends_after(last: Snapshot, topic: str, placed: Iterable[Placed]) -> dict[str, dict[int, int]]:
    ends = dict(last.end_offsets[topic])
    for one in placed:
        ends[one.partition] = one.offset + 1
    return {name: ends if name == topic else dict(at) for name, at in last.end_offsets.items()}


def _events(placed: Iterable[Placed], number: int, numbering: Numbering) -> pa.Table:
    """Return records as rows of their history, partition by partition, as Spark reads them."""
    schema = arrow_schema(POSITION_EVENTS)
    columns = pa.schema([one for one in schema if one.name not in RETRY_NAMES])
    rows = sorted(placed, key=lambda one: (one.partition, one.offset))
    return pa.Table.from_pylist([_event(one, number, numbering) for one in rows], columns)


def _event(placed: Placed, number: int, numbering: Numbering) -> dict[str, Any]:
    key, value, at = placed.record
    form = json.loads(value) if value is not None else {}
    return {
        "key": key,
        "partition": placed.partition,
        "offset": placed.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at),
        "seq": numbering.seq(key, placed.partition, placed.offset),
        "snapshot": number,
        "kind": str(RecordKind.TOMBSTONE if value is None else RecordKind.UPSERT),
        "value": value.encode() if value is not None else None,
        "client": form.get("Client"),
        "ticker": form.get("Ticker"),
        "amount": str(form["Amount"]) if form else None,
        "exchange": form.get("Exchange"),
    }


def _set_times(folder: str, since: float, to: float) -> None:
    """Give the files below a folder that were written since a time the time `to`."""
    for entry in os.scandir(folder):
        if entry.stat().st_mtime < since:
            continue  # nothing was added to a folder of that time, and folders within it neither
        if entry.is_dir():
            _set_times(entry.path, since, to)
        else:
            os.utime(entry.path, (to, to))
