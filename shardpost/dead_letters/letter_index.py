"""All letters as one Arrow file with a row each, from which pages of a million letters are read.

The file is a cache in the machine's home for a version of the table: it is rebuilt from the table,
in a few seconds for a million letters, when too much has changed. Smaller changes, and records
after the table, are folded into its rows at each query, by the same rules (letter_history.py). It
is mapped into memory and shared by processes.

It has no error texts, which may contain an erased contact: they are read from the table.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.letter_rows import SCHEMA, Place, letters_of, place_of, with_changes
from shardpost.dead_letters.letter_topics import TableProgress, table_now
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.dead_letters.model.letter_history import Step
from shardpost.delta.query import rows
from shardpost.delta.storage import Tables, exists
from shardpost.delta.table import text_literal
from shardpost.errors import ShardpostError, harmless
from shardpost.installation import Installation, opened
from shardpost.kafka.records import total_size
from shardpost.locks.locks import exclusive_here
from shardpost.locks.shared_files import Files

FOLDER = "letter-index"
_META = b"shardpost"
# The most errors looked up one by one.
FEW = 20_000
# The most steps merged into the file's rows, in half a second; with more it is rebuilt.
MOST_CHANGES = 5_000
# With more rows than this, a child process builds it, which frees its memory.
MANY_ROWS = 200_000
# How long to wait for another process that builds it: a million letters take seconds.
WAIT_SECONDS = 300.0


@dataclass(frozen=True)
class LetterIndex:
    """The letters as rows of SCHEMA, newest first; those with a true `mask` count.

    `errors` are texts not yet in the table; `unread` is the number of topic records not included:
    too many for one query, left to a sweep.
    """

    rows: pa.Table
    mask: pa.ChunkedArray | None = None
    errors: Mapping[Place, str] = field(default_factory=dict)
    unread: int = 0


class KeptIndex:
    """The index that was requested last, to be passed to the next request."""

    def __init__(self) -> None:
        self.making = threading.Lock()
        self._last: tuple[object, LetterIndex] | None = None

    def get(self, of: object, make: Callable[[], LetterIndex]) -> LetterIndex:
        """Return it if the records are the same, else build it."""
        last = self._last
        if last is None or last[0] != of:
            last = self._last = of, make()
        return last[1]


def open_index(
    installation: Installation, kept: KeptIndex, *, most_unread: int | None = None
) -> LetterIndex:
    """Return all letters as of now, from the table and the records after it.

    Those are left out if there are more than `most_unread`.
    """
    table, progress = table_now(installation)
    found = _changes(installation, table, progress)
    if table is not None and found is None:
        with kept.making:
            if _changes(installation, table, progress) is None:  # no other thread has built it
                (_make_in_process if _row_count(table) > MANY_ROWS else make)(installation)
        table, progress = table_now(installation)
        found = _changes(installation, table, progress)
    if found is None:
        raise ShardpostError("the table of letters was changed while it was read: try again")
    base, newer = found
    unread = total_size(progress.unread)
    if most_unread is not None and unread > most_unread:
        progress = replace(progress, unread=[])
    else:
        unread = 0
    if not newer and not progress.unread:
        return LetterIndex(base, unread=unread)
    version = table and (table.metadata().id, table.version())
    of = (installation.tables.root, version, progress)

    def changed() -> LetterIndex:
        """Return the file's rows merged with later steps, and those not yet in the table."""
        new = [*letters_table.not_in_table(installation, progress)]
        rows, mask = with_changes(base, [*newer, *new], progress.generations)
        errors = {place_of(step): step.error for step in new if step.error}
        return LetterIndex(rows, mask, errors, unread)

    return kept.get(of, changed)


def _make_in_process(installation: Installation) -> None:
    command = [sys.executable, "-m", __name__]
    environ = {**os.environ, **installation.settings.environ()}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        said = harmless(done.stderr.strip().rpartition("\n")[2])
        raise ShardpostError(f"the index of letters could not be built: {said}")


def _path(files: Files, table: DeltaTable) -> Path:
    return files.folder(FOLDER) / f"{table.metadata().id}.arrow"


def _changes(
    installation: Installation, table: DeltaTable | None, progress: TableProgress
) -> tuple[pa.Table, Sequence[Step]] | None:
    """Return the file's rows and the changes since; None if it is not from this table."""
    if table is None:
        return SCHEMA.empty_table(), []
    try:
        with pa.memory_map(str(_path(installation.files, table))) as file:
            base = pa.ipc.open_file(file).read_all()
        known = json.loads((base.schema.metadata or {})[_META])
    except (OSError, pa.ArrowInvalid, KeyError, ValueError):
        return None
    if known["generations"] != progress.generations or known["version"] > table.version():
        return None
    if known["version"] == table.version():
        return base, []
    count = _row_count(table) - known["rows"]
    if not 0 <= count <= MOST_CHANGES:
        return None
    newer = _steps_since(installation, table, progress, known["next"])
    return (base, newer) if len(newer) == count else None  # else old letters were removed


def _row_count(table: DeltaTable) -> int:
    return sum(pa.chunked_array(table.get_add_actions().column("num_records")).to_pylist())


def _steps_since(
    installation: Installation, table: DeltaTable, progress: TableProgress, since: Mapping[str, int]
) -> list[Step]:
    later = [
        f"(topic = {text_literal(at.topic)} AND generation = {progress.generations[at.topic]}"
        f' AND "partition" = {at.partition} AND "offset" >= {since.get(str(at), 0)})'
        for at, offset in progress.next_offsets.items()
        if offset > since.get(str(at), 0)
    ]
    if not later:
        return []
    return letters_table.steps_where(installation, " OR ".join(later), table.version())


def _write(path: Path, rows: pa.Table) -> None:
    """Write the file; readers of the previous file keep it open."""
    own = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    try:
        with pa.OSFile(str(own), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)
    for other in path.parent.glob("*.arrow"):  # of a recreated table
        if other != path:
            other.unlink(missing_ok=True)


def error_texts(tables: Tables, index: LetterIndex, places: Collection[Place]) -> dict[Place, str]:
    """Return the existing error texts by their places."""
    found = {place: index.errors[place] for place in places if place in index.errors}
    asked = {place for place in places if place not in found}
    if not asked or not exists(tables, DEAD_LETTERS):
        return found
    where = "error IS NOT NULL" if len(asked) > FEW else _of_places(asked)
    sql = f"""
    SELECT topic, generation, "partition", "offset", error FROM dead_letters
    WHERE {where}"""  # noqa: S608 - literals
    for row in rows(tables, sql, {DEAD_LETTERS: None}):
        place = row["topic"], row["generation"], row["partition"], row["offset"]
        if row["error"] is not None and place in asked:
            found[place] = row["error"]
    return found


def _of_places(asked: Collection[Place]) -> str:
    """Return a condition for rows at these places and some more: faster than one for each place."""
    columns = ((text_literal(topic), *map(str, numbers)) for topic, *numbers in asked)
    sets = (", ".join(sorted({*values})) for values in zip(*columns, strict=True))
    topics, generations, numbers, offsets = sets
    return (
        f'"offset" IN ({offsets}) AND "partition" IN ({numbers}) AND topic IN ({topics})'
        f" AND generation IN ({generations})"
    )


def make(installation: Installation) -> None:
    """Build the file from the current table, unless another process just did."""
    lock, what = "letter_index", "the index of letters"
    with exclusive_here(installation.files, lock, what, wait=WAIT_SECONDS):
        table, progress = table_now(installation)
        found = _changes(installation, table, progress)
        if table is None or (found is not None and not found[1]):
            return
        known = {
            "version": table.version(),
            "rows": _row_count(table),
            "generations": progress.generations,
            "next": {str(at): offset for at, offset in progress.next_offsets.items()},
        }
        made = letters_of(installation, table.version(), progress.generations)
        made = made.replace_schema_metadata({_META: json.dumps(known)})
        _write(_path(installation.files, table), made)


if __name__ == "__main__":
    make(opened())
