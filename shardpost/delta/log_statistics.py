"""What the log of a table says of values that must not outlive its files.

The log of a Delta table has the lowest and the highest value of the columns of each file, and keeps
them when the file is gone: of a table of clients these are names and addresses.
"""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyarrow import fs

from shardpost.delta.query import path_of
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

_PER_COLUMN = ("minValues", "maxValues", "nullCount")
_LOG = "_delta_log"


def reduced(action: AddAction, columns: Collection[str]) -> AddAction:
    """Return the action of a file with the statistics of these columns only."""
    return replace(action, stats=_reduced(action.stats, columns))


def reduce_log(settings: Settings, table: Table, columns: Collection[str]) -> int:
    """Leave only the statistics of these columns in all entries of a table's log.

    What the table holds at any version stays as it is. Entries are replaced one by one, each at
    once; a checkpoint is removed first, since the entries since the first say all that it does.
    Returns how many files were changed or removed. The caller lets nobody else write to the table.
    """
    system, root = fs.FileSystem.from_uri(f"{path_of(settings, table)}/{_LOG}")
    found = {info.base_name: info.path for info in system.get_file_info(fs.FileSelector(root))}
    entries = {name: path for name, path in found.items() if name.endswith(".json")}
    texts = {path: _rewritten(system, path, columns) for path in entries.values()}
    changed = {path: text for path, text in texts.items() if text is not None}
    checkpoints = [path for name, path in found.items() if ".checkpoint" in name]
    tells = any(_checkpoint_tells(system, path, columns) for path in checkpoints)
    removed = checkpoints if changed or tells else []
    if removed:
        _require_whole(table, entries)
        removed += [path for name, path in found.items() if name == "_last_checkpoint"]
    # The pointer to the checkpoint is the last of them, and goes first.
    for path in reversed(removed):
        system.delete_file(path)
    for path, text in changed.items():
        _replace(system, path, text)
    return len(removed) + len(changed)


def _rewritten(system: fs.FileSystem, path: str, columns: Collection[str]) -> bytes | None:
    """Return what an entry should be; None if it is so already."""
    with system.open_input_stream(path) as stream:
        before: bytes = stream.read()
    lines = [json.loads(line) for line in before.splitlines() if line.strip()]
    is_changed = False
    for line in lines:
        for action in (line.get("add"), line.get("remove")):
            if action and _tells(action.get("stats"), columns):
                action["stats"] = _reduced(action["stats"], columns)
                is_changed = True
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode() if is_changed else None


def _tells(stats: str | None, columns: Collection[str]) -> bool:
    """Tell whether statistics say something of other columns."""
    found: dict[str, Any] = json.loads(stats) if stats else {}
    return any(set(found.get(part) or ()) - set(columns) for part in _PER_COLUMN)


def _reduced(stats: str, columns: Collection[str]) -> str:
    found: dict[str, Any] = json.loads(stats) if stats else {}
    for part in _PER_COLUMN:
        if part in found:
            kept = found[part] or {}
            found[part] = {name: kept[name] for name in kept if name in columns}
    return json.dumps(found)


def _checkpoint_tells(system: fs.FileSystem, path: str, columns: Collection[str]) -> bool:
    """Tell whether a checkpoint says something of other columns; one that cannot be read may."""
    if not path.endswith(".parquet"):
        return True
    with system.open_input_file(path) as file:
        for row in pq.ParquetFile(file).read(["add"], use_threads=False).column("add").to_pylist():
            if row and (row.get("stats_parsed") or _tells(row.get("stats"), columns)):
                return True
    return False


def _require_whole(table: Table, entries: Collection[str]) -> None:
    """Refuse to remove a checkpoint of which earlier entries are gone: the table would be lost."""
    numbers = {int(name.removesuffix(".json")) for name in entries if name[:1].isdigit()}
    if missing := set(range(max(numbers, default=-1) + 1)) - numbers:
        raise ShardpostError(
            f"the log of table {table.name} lacks version {min(missing)}, so its checkpoints cannot"
            " be written anew, and may still tell names and addresses: write the table anew"
        )


def _replace(system: fs.FileSystem, path: str, content: bytes) -> None:
    """Replace a file at once: readers see the one before or this one."""
    is_local = isinstance(system, fs.LocalFileSystem)
    # An object store shows an object when it is complete.
    written = f"{path}.new" if is_local else path
    with system.open_output_stream(written) as stream:
        stream.write(content)
    if is_local:
        system.move(written, path)
