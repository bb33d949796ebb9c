"""Whether a home that grew old without Spark is like one that grew old by it: tables and logs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from bench.aged_home import AgedHome
from bench.aging import APART
from bench.ours import Ours
from shardpost.delta.parquet_files import TIER_BYTES
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import path_of
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS
from shardpost.settings import Settings
from tests.support.installed import installed

COMPARED = (POSITION_EVENTS, POSITIONS, SHARE_HOLDERS, SNAPSHOTS)


def compare(settings: Settings, records: int, snapshots: int) -> None:
    """Let two homes grow old, one by Spark; print what their tables and logs are made of."""
    homes = [
        AgedHome(Ours(settings, f"ours-like-{name}", f"like-{name}"), records)
        for name in ("spark", "arrow")
    ]
    began = datetime.now(UTC) - snapshots * APART
    if not homes[-1].snapshots:
        for home in homes:
            home.empty()
        for home in homes:
            home.begin(began)
    by_spark, by_arrow = homes
    by_spark.grow_old(snapshots, by_spark=True)
    by_arrow.grow_old(snapshots)
    print("| | by Spark | without | ratio |\n| --- | --- | --- | --- |")
    for table in COMPARED:
        both = zip(*(_made_of(home.settings, table) for home in homes), strict=True)
        for (name, first), (_, second) in both:
            ratio = f"{second / first:.2f}" if first else ""
            print(f"| {table.name}: {name} | {first:,} | {second:,} | {ratio} |")
    for home in homes:
        home.check()


def _made_of(settings: Settings, table: Table) -> Iterator[tuple[str, int]]:
    found = DeltaTable(path_of(installed(settings).tables, table))
    actions = pa.table(found.get_add_actions())
    sizes = actions["size_bytes"].to_pylist()
    yield "version", found.version()
    yield "rows", sum(actions["num_records"].to_pylist())
    for lower, upper in zip((0, *TIER_BYTES), (*TIER_BYTES, 1 << 63), strict=True):
        yield f"files from {lower >> 10:,} KiB", sum(lower <= size < upper for size in sizes)
    yield "bytes of these", sum(sizes)
    folder = Path(path_of(installed(settings).tables, table))
    log = folder / "_delta_log"
    commits, checkpoints = [*log.glob("*.json")], [*log.glob("*.checkpoint.parquet")]
    yield "commits in the log", len(commits)
    yield "bytes of these", sum(path.stat().st_size for path in commits)
    yield "checkpoints", len(checkpoints)
    every = [path for path in folder.rglob("*") if path.is_file()]
    yield "files in the folder, with its log", len(every)
    yield "bytes of these", sum(path.stat().st_size for path in every)
