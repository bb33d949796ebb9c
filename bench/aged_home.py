"""A home that grows old, and can be gone on with: what it is like stands in its tables and topic.

It grows through tiny compactions, a quarter of an hour apart by their clock: without Spark
(bench/tiny_compactions.py), or by the product's own (bench/aging.py). It is maintained once in each
of its weeks, as the DAG does.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import kafka, stream
from bench.aging import APART
from bench.measured import Measured
from bench.ours import Ours
from bench.tiny_compactions import TinyCompactions
from shardpost.delta import snapshots
from shardpost.maintenance.maintain import maintain_all
from shardpost.settings import Settings
from tests.support.installed import installed

WEEK = 7 * 24 * 4
MORE = 20
BEGAN = "began"


@dataclass(frozen=True)
class AgedHome:
    """One application whose topic began with so many records."""

    ours: Ours
    records: int

    @property
    def settings(self) -> Settings:
        """Its settings."""
        return self.ours.settings

    @property
    def snapshots(self) -> int:
        """How many snapshots it has had."""
        newest = snapshots.newest(installed(self.settings).tables)
        return newest.number if newest else 0

    @property
    def there(self) -> int:
        """How many records were put into its topic."""
        return kafka.length(self.settings, self.settings.topic("positions"))

    def empty(self) -> None:
        """Make it new: nothing in its tables, its first records in its topic."""
        topic = self.settings.topic("positions")
        kafka.delete(self.settings, [topic])
        kafka.create(self.settings, topic)
        kafka.produce(self.settings, topic, stream.records(self.records))
        self.ours.reset()

    def begin(self, at: datetime) -> None:
        """Make the first snapshot; by the clock that it grows old by, it is made at `at`."""
        (self.settings.home / BEGAN).write_text(str(int(at.timestamp())))
        self.ours.compact()

    def grow_old(self, to: int, *, by_spark: bool = False) -> None:
        """Make snapshots until there are so many; maintain it once a week of its clock."""
        make = self._by_spark if by_spark else self._without_spark
        began = datetime.fromtimestamp(int((self.settings.home / BEGAN).read_text()), UTC)
        while (there := self.snapshots) < to:
            runs = min(to, (there // WEEK + 1) * WEEK) - there
            start = time.perf_counter()
            make(began, there, runs)
            each = (time.perf_counter() - start) / runs
            print(f"  {there + runs:,} of {to:,} snapshots, {each:.3f} s each", flush=True)

    def _by_spark(self, began: datetime, there: int, runs: int) -> None:
        at = int((began + there * APART).timestamp())
        numbers = (self.records, self.there, runs, MORE, at)
        self.ours.script("aging", self.settings.topic("positions"), *map(str, numbers))
        if (there + runs) % WEEK == 0:
            self.ours.command("tables", "maintain")

    def _without_spark(self, began: datetime, there: int, runs: int) -> None:
        last = TinyCompactions(self.settings, self.records, MORE, began).run(runs)
        if (there + runs) % WEEK == 0:
            start = time.perf_counter()
            maintain_all(
                installed(self.settings), last.committed_at
            )  # its files have times of that clock
            print(f"  maintained in {time.perf_counter() - start:.1f} s", flush=True)

    def compact(self) -> Measured:
        """Compact a few records more."""
        there = self.there
        more = stream.records(self.records, there, there + MORE - self.records)
        kafka.produce(self.settings, self.settings.topic("positions"), more)
        return self.ours.compact()

    def sizes(self) -> Iterator[tuple[str, float]]:
        """Yield the size of each table's folder, of all, and of what could go, in MB."""
        root, total = Path(self.settings.tables_root), 0.0
        for table in sorted(root.iterdir()):
            files = (file.stat().st_size for file in table.rglob("*") if file.is_file())
            size = sum(files) / 1e6
            total += size
            yield f"{table.name}, MB", size
        plan = maintain_all(installed(self.settings), datetime.now(UTC), dry_run=True).tables
        yield "all tables, MB", total
        needed = total - sum(table.size for table in plan.tables) / 1e6
        yield "all tables, of what is kept", total / needed

    def check(self) -> None:
        """RuntimeError unless what is published is a plain fold of all records."""
        records = stream.records(self.records, more=self.there - self.records)
        found = kafka.latest(self.settings, self.settings.topic("share-holders"))
        if found != stream.holders(records):
            raise RuntimeError("the holders are not what a plain fold makes of the same records")
