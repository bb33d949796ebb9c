"""Parquet files of a table that this process writes itself: new rows, and merged files.

Small files are merged by tiers, as a log-structured merge tree does: a tier that is full is
merged with the tiers below it, into one file of a higher tier. So a table that grows by small
files keeps a few dozen of them, and each byte is written again once per tier.

In memory is one row group of an old file and one of the new file at a time.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake.transaction import AddAction

from shardpost.delta import file_statistics, storage, stored_files
from shardpost.delta.arrow_schema import arrow_schema, in_form, rows_of
from shardpost.delta.query import query, stream
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table, Version
from shardpost.errors import ShardpostError

# Files of a tier are smaller than that; those of the last bound and more are never merged.
TIER_BYTES = (128 << 10, 2 << 20, 32 << 20)
FILES_PER_TIER = 16


def to_merge(table: Table, sizes: Mapping[str, int]) -> list[list[str]]:
    """Return the groups of files to merge into one each; `sizes` is {path: bytes}.

    A group has files of one folder of `Table.grouped_by`, in the order in which they were written.
    """
    folders: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in sizes.items():
        folders[group_folder(table, path)][path] = size
    groups = (_full_tiers(files) for files in folders.values())
    return [sorted(group) for group in groups if group]


def group_folder(table: Table, path: str) -> str:
    """Return the folder within a write's folder that has one group's files; "" without groups."""
    return path.split("/")[1] if table.grouped_by and path.count("/") > 1 else ""


def _full_tiers(sizes: Mapping[str, int]) -> list[str]:
    """Return the files of the highest tier that is full, and of all tiers below it."""
    for number in reversed(range(len(TIER_BYTES))):
        lower = TIER_BYTES[number - 1] if number else 0
        below = [path for path, size in sizes.items() if size < TIER_BYTES[number]]
        if sum(sizes[path] >= lower for path in below) >= FILES_PER_TIER:
            return below
    return []


# Row groups of files that were merged have about so many bytes in memory, and no more rows.
GROUP_BYTES = 64 << 20
GROUP_ROWS = 1 << 20
# Row groups of so many bytes are sorted at most: a sorted copy is in memory beside them.
SORTED_BYTES = 4 * GROUP_BYTES
# Of a table that is sorted, a page has no more rows: readers skip pages by their bounds.
PAGE_ROWS = 2048

# Rows of a table in, rows of it out.
Change = Callable[[pa.Table], pa.Table]


def read(tables: Tables, table: Table, path: str) -> pa.Table:
    """Return the rows of one file with all columns of the table; what it lacks is null."""
    return pa.concat_tables([arrow_schema(table).empty_table(), *parts(tables, table, path)])


def write(tables: Tables, table: Table, rows: pa.Table, path: str) -> AddAction:
    """Write rows as a new file of the table, not committed yet; return its add action."""
    return _write(tables, table, path, [rows])


def write_grouped(tables: Tables, table: Table, rows: pa.Table, folder: str) -> list[AddAction]:
    """Write rows as new files in a folder, one for each value of `Table.grouped_by`."""
    import pyarrow.compute as pc

    groups = {"": rows}
    if table.grouped_by:
        column = rows[table.grouped_by]
        groups = {
            f"group={value}/": rows.filter(pc.equal(column, value))
            for value in sorted(set(column.to_pylist()))
        }

    def written(group: tuple[str, pa.Table]) -> AddAction:
        name, part = group
        return write(tables, table, part, f"{folder}/{name}part.parquet")

    return stored_files.side_by_side(written, [group for group in groups.items() if len(group[1])])


def write_parts(
    tables: Tables, table: Table, parts: Iterable[pa.Table], path: str
) -> tuple[AddAction | None, int]:
    """Write rows, given in parts, as a new file; return its add action, and the row count.

    None, and no file, without rows.
    """
    action = _write(tables, table, path, _grouped(parts))
    rows = int(json.loads(action.stats)["numRecords"])
    if rows:
        return action, rows
    delete(tables, table, [path])
    return None, 0


def merge(tables: Tables, table: Table, paths: Sequence[str], target: str) -> AddAction:
    """Write the rows of files as one new file, sorted if the table is; return its add action."""
    rows = (part for path in paths for part in parts(tables, table, path))
    return _write(tables, table, target, _grouped(rows))


def rewrite(
    tables: Tables, table: Table, path: str, target: str, change: Change
) -> AddAction | None:
    """Write the changed rows of a file as a new file; return its add action, None without rows."""
    changed = map(change, parts(tables, table, path))
    return write_parts(tables, table, changed, target)[0]


def parts(
    tables: Tables, table: Table, path: str, columns: Collection[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file, a row group at a time, with all columns of the table or some.

    Columns that the file lacks are null.
    """
    import pyarrow.parquet as pq  # readers of tables do not need it

    system, root = stored_files.folder(tables, table)
    schema = arrow_schema(table)
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in columns])
    with system.open_input_file(f"{root}/{path}") as source, pq.ParquetFile(source) as file:
        for group in range(file.num_row_groups):
            found = file.read_row_group(group, columns=schema.names, use_threads=False)
            yield in_form(schema, found)


def merge_small(
    tables: Tables, table: Table, version: int, folder: str
) -> tuple[list[AddAction], list[str]]:
    """Merge the small files of a version that are due (`to_merge`), into a new folder.

    Return the add actions of the new files, not committed yet, and the paths of the old ones.
    """
    groups = to_merge(table, storage.sizes(tables, table, version))
    made = []
    for paths in groups:
        parts = (folder, group_folder(table, paths[0]), "merged.parquet")
        made.append(merge(tables, table, paths, "/".join(filter(None, parts))))
    return made, [path for paths in groups for path in paths]


# Of a layer.
MOST_RECORDS = 500_000
ROWS_AT_ONCE = 1024  # of lists, in memory


def write_folded(tables: Tables, table: Table, version: Version, folder: str) -> list[AddAction]:
    """Write a table with its layer folded in as new files in a folder; return their add actions.

    One file for each value of `Table.grouped_by`; none without rows. What the table has is streamed
    past the records of its layer, which are in memory: that takes less than a fifth of the time
    that Spark does, as long as they fit.
    """
    column = table.grouped_by
    if column is None:
        return _write_query(tables, table, version, f"{folder}/part.parquet")
    sql = f"SELECT DISTINCT {column} AS value FROM {table.name}"  # noqa: S608 - declared names
    values = query(tables, sql, {table: version})["value"].to_pylist()
    return [
        action
        for value in sorted(values)
        for path in [f"{folder}/group={value}/part.parquet"]
        for action in _write_query(tables, table, version, path, f"WHERE {column} = {value}")
    ]


def _write_query(
    tables: Tables, table: Table, version: Version, path: str, condition: str = ""
) -> list[AddAction]:
    sql = f"SELECT * FROM {table.name} {condition}"  # noqa: S608 - ours

    def parts() -> Iterator[pa.Table]:
        for batch in stream(tables, sql, {table: version}, ROWS_AT_ONCE):
            yield rows_of(table, pa.Table.from_batches([batch]))

    action, _ = write_parts(tables, table, parts(), path)
    return [action] if action else []


def copy(
    tables: Tables, source: Table, paths: Iterable[str], table: Table, folder: str
) -> list[AddAction]:
    """Copy files of a table into a new folder of one with the same columns, as they are.

    Return the add actions of the copies, not committed yet.
    """
    system, old = stored_files.folder(tables, source)
    _, new = stored_files.folder(tables, table)

    def copied(numbered: tuple[int, str]) -> AddAction:
        number, path = numbered
        parts = (folder, group_folder(table, path), f"copy-{number:05d}.parquet")
        target = "/".join(filter(None, parts))
        stored_files.make_folder_of(tables, table, target)
        system.copy_file(f"{old}/{path}", f"{new}/{target}")
        return file_statistics.add_action(system, table, new, target)

    return stored_files.side_by_side(copied, enumerate(sorted(paths)))


def delete(tables: Tables, table: Table, paths: Iterable[str]) -> None:
    """Delete files that were written and not committed; missing ones are skipped.

    What cannot be deleted stays until the maintenance of the tables removes it.
    """
    for path in paths:
        with suppress(OSError, ShardpostError):
            stored_files.delete(tables, table, [path])


def _write(tables: Tables, table: Table, path: str, parts: Iterable[pa.Table]) -> AddAction:
    import pyarrow.parquet as pq

    system, root = stored_files.folder(tables, table)
    stored_files.make_folder_of(tables, table, path)
    schema = arrow_schema(table)
    fields = (field for field in schema if field.name not in table.not_in_dictionaries)
    in_dictionaries = [leaf for field in fields for leaf in _leaves(field.name, field.type)]
    options = {"store_schema": False, "use_dictionary": in_dictionaries}
    if table.sorted_by:
        options |= {"write_page_index": True, "max_rows_per_page": PAGE_ROWS}
    try:
        with pq.ParquetWriter(f"{root}/{path}", schema, filesystem=system, **options) as writer:
            for rows in parts:
                is_sorted = table.sorted_by is not None and rows.nbytes <= SORTED_BYTES
                written = rows.sort_by(table.sorted_by) if is_sorted else rows
                writer.write_table(written, row_group_size=GROUP_ROWS)
        return file_statistics.add_action(system, table, root, path)
    except BaseException:
        delete(tables, table, [path])
        raise


def _grouped(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables combined into tables of the size of a row group."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        waiting.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _leaves(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    elif pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path
