"""What age costs: the same commands and the disk at snapshot 100, and many snapshots later.

A home grows old through the product's own compactions (bench/aging.py), a quarter of an hour apart
by their clock, and is maintained once in each of its weeks, as the DAG does.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import kafka, stream
from bench.aging import APART
from bench.measured import Measured
from bench.ours import Ours
from shardpost.settings import Settings

WEEK = 7 * 24 * 4
YOUNG = 100
MORE = 20
CLIENT = "C000007"


@dataclass(frozen=True)
class Ages:
    """Records at first; how many snapshots the old home has; how often each is measured."""

    records: int
    snapshots: int
    runs: int


@dataclass
class Home:
    """The home that grows old: its snapshots, and how many records were put into its topic."""

    ours: Ours
    ages: Ages
    topic: str
    snapshots: int = 0
    there: int = 0

    def begin(self) -> None:
        """Start from nothing, with one snapshot of the first records."""
        kafka.delete(self.ours.settings, [self.topic])
        kafka.create(self.ours.settings, self.topic)
        kafka.produce(self.ours.settings, self.topic, stream.records(self.ages.records))
        self.ours.reset()
        self.ours.compact()
        self.snapshots, self.there = 1, self.ages.records

    def grow_old(self, snapshots: int) -> None:
        """Make snapshots until there are so many; maintain it once a week of its clock."""
        while self.snapshots < snapshots:
            runs = min(snapshots, (self.snapshots // WEEK + 1) * WEEK) - self.snapshots
            back = (self.ages.snapshots + 1000 - self.snapshots) * APART.total_seconds()
            numbers = (self.ages.records, self.there, runs, MORE, int(back))
            self.ours.script("aging", self.topic, *map(str, numbers))
            self.snapshots += runs
            self.there += runs * MORE
            print(f"  snapshot {self.snapshots:,} of {self.ages.snapshots:,}", flush=True)
            if self.snapshots % WEEK == 0:
                self.ours.command("tables", "maintain")

    def compact(self) -> Measured:
        """Compact a few records more."""
        more = stream.records(self.ages.records, self.there, self.there + MORE - self.ages.records)
        kafka.produce(self.ours.settings, self.topic, more)
        self.there += MORE
        self.snapshots += 1
        return self.ours.compact()

    def check(self) -> None:
        """RuntimeError unless what is published is a plain fold of all records."""
        records = stream.records(self.ages.records, more=self.there - self.ages.records)
        found = kafka.latest(self.ours.settings, self.ours.settings.topic("share-holders"))
        if found != stream.holders(records):
            raise RuntimeError("the holders are not what a plain fold makes of the same records")


def measure(settings: Settings, ages: Ages) -> None:
    """Measure the young home and the old one; print both, and their ratios."""
    topic = f"age-{ages.records}"
    home = Home(Ours(settings, f"ours-{topic}", topic), ages, topic)
    home.begin()
    home.grow_old(YOUNG)
    young = dict(_measured(home))
    home.grow_old(ages.snapshots)
    home.ours.command("tables", "maintain")
    old = dict(_measured(home))
    home.check()
    print(f"\n| | snapshot {YOUNG} | snapshot {ages.snapshots:,} | ratio |")
    print("| --- | --- | --- | --- |")
    for name, before in young.items():
        after = old[name]
        print(f"| {name} | {before:.2f} | {after:.2f} | {after / before:.2f} |")


def _measured(home: Home) -> Iterator[tuple[str, float]]:
    at = "2025-06-02T00:00:10+00:00"  # the records begin at the start of that day
    commands: dict[str, Callable[[], Measured]] = {
        f"compact {MORE} records, s": home.compact,
        "compact with nothing new, s": home.ours.compact,
        "holders CLIENT, s": lambda: home.ours.command("holders", CLIENT),
        "holders, s": lambda: home.ours.command("holders", "--json"),
        "holders CLIENT --as-of, s": lambda: home.ours.command("holders", CLIENT, "--as-of", at),
        "explain CLIENT, s": lambda: home.ours.command("explain", CLIENT),
        "snapshots, s": lambda: home.ours.command("snapshots"),
    }
    for name, command in commands.items():
        yield name, statistics.median(command().seconds for _ in range(home.ages.runs))
    for table, size in _sizes(home.ours.settings).items():
        yield f"{table}, MB", size


def _sizes(settings: Settings) -> dict[str, float]:
    """Return the size of each table's folder, and of all, in MB."""
    found: dict[str, float] = {}
    for table in sorted(Path(settings.tables_root).iterdir()):
        files = (file.stat().st_size for file in table.rglob("*") if file.is_file())
        found[table.name] = sum(files) / 1e6
    return found | {"all tables": sum(found.values())}
