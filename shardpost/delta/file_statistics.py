"""Statistics in the log of a table about the values in its files: bounds and null counts.

A log keeps that when the file is gone: of a table of clients these would be names and addresses. So
columns of `Table.contacts` have no bounds.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltalake.transaction import AddAction

from shardpost.delta import stored_files
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyarrow import fs

# Bounds of longer texts are of no use for pruning, and would bloat the log.
MAX_BOUND_LENGTH = 64


NOT_SHARED = (
    "SHARDPOST_TABLES has to be storage that Spark's driver and all of its workers see at the same"
    " path, or an object store"
)


def require_seen(tables: Tables, table: Table, paths: Iterable[str]) -> None:
    """Raise ShardpostError unless this process sees files that others have written."""
    system, root = stored_files.folder(tables, table)
    try:
        for path in paths:
            add_action(system, table, root, path)
    except FileNotFoundError:
        raise ShardpostError(
            f"{table.name}: expected the file {path}, which a worker of Spark has just written,"
            f" found none: {NOT_SHARED}"
        ) from None


# The lowest and the highest value of each column.
Bounds = dict[str, tuple[Any, Any]]


def add_actions(tables: Tables, table: Table, folder: str) -> list[AddAction]:
    """Return the add action of each Parquet file with rows in a folder of the table."""
    system, _ = stored_files.folder(tables, table)
    root, listed = stored_files.listing(tables, table, folder)

    def read(info: "fs.FileInfo") -> tuple[AddAction, int]:
        path = f"{folder}/{info.path.removeprefix(root).lstrip('/')}"
        return _add_action(system, table, info, path)

    infos = [
        info
        for info in listed
        if info.base_name.endswith(".parquet") and not info.base_name.startswith(("_", "."))
    ]
    return [action for action, rows in stored_files.side_by_side(read, infos) if rows]


def add_action(system: "fs.FileSystem", table: Table, root: str, path: str) -> AddAction:
    """Return the add action of one Parquet file in a table's folder, which is at `root` there."""
    return _add_action(system, table, system.get_file_info(f"{root}/{path}"), path)[0]


def _add_action(
    system: "fs.FileSystem", table: Table, info: "fs.FileInfo", path: str
) -> tuple[AddAction, int]:
    import pyarrow.parquet as pq  # readers of tables do not need it

    with system.open_input_file(info.path) as file:
        metadata = pq.ParquetFile(file).metadata
    at = int(info.mtime.timestamp() * 1000)
    # deltalake 1.6.6 reads the escape of a character beyond U+1FFFF as another character, and
    # would pass over files that have what is asked for.
    statistics = json.dumps(_statistics(metadata, table.contacts), ensure_ascii=False)
    return AddAction(path, info.size, {}, at, True, statistics), metadata.num_rows


def _statistics(metadata: "pq.FileMetaData", without_bounds: Collection[str]) -> dict[str, Any]:
    """Return a file's statistics in Delta's form: rows, and bounds and nulls of flat columns."""
    bounds: Bounds = {}
    nulls: Counter[str] = Counter()
    unbounded: set[str] = {*without_bounds}
    uncounted: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name, statistics = column.path_in_schema, column.statistics
            found = _bounds(statistics)
            if found is None or "." in name:
                unbounded.add(name)
            elif found != ():
                low, high = bounds.get(name, found)
                bounds[name] = (min(low, found[0]), max(high, found[1]))
            if "." in name or statistics is None or not statistics.has_null_count:
                uncounted.add(name)
            else:
                nulls[name] += statistics.null_count
    known = {name: pair for name, pair in bounds.items() if name not in unbounded}
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _text(low) for name, (low, _) in known.items()},
        "maxValues": {name: _text(high) for name, (_, high) in known.items()},
        "nullCount": {name: count for name, count in nulls.items() if name not in uncounted},
    }


def _bounds(statistics: "pq.Statistics | None") -> tuple[Any, ...] | None:
    """Return (lowest, highest), () of a column without values, None where there are no bounds."""
    if statistics is None:
        return None
    if not statistics.has_min_max:
        return () if statistics.num_values == 0 else None
    try:
        low, high = statistics.min, statistics.max
    except (OverflowError, ValueError):
        return None  # a time outside the years of Python's datetime
    is_ordered = isinstance(low, int | str | datetime) and not isinstance(low, bool)
    if not is_ordered or (isinstance(low, str) and max(len(low), len(high)) > MAX_BOUND_LENGTH):
        return None
    # Delta's bounds of times have milliseconds, as Kafka's timestamps have.
    if isinstance(low, datetime) and (low.microsecond % 1000 or high.microsecond % 1000):
        return None
    return low, high


def _text(bound: Any) -> Any:
    if not isinstance(bound, datetime):
        return bound
    at = bound.astimezone(UTC).isoformat(timespec="milliseconds")
    return at.replace("+00:00", "Z")
