"""All letters as one file of Arrow, a row each: what a page of a million of them is read from.

The file is a cache in the home of the machine that asks, by the version of the table: it is made
of the table, in a few seconds for a million letters, whenever too much has changed since. What has
changed a little, and what the topics have after the table, is folded into its rows at each
question, by the same rules (letter_history.py). It is mapped into memory, so many processes share
it.

It has no text of errors, which may be a contact that is erased: those are read from the table by
their places.
"""

import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.letter_topics import TableProgress, partitions, read_progress
from shardpost.dead_letters.letters_table import FEW, FEW_OFFSETS
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, LetterState
from shardpost.dead_letters.model.letter_history import Generations, Step, newest_steps
from shardpost.delta.query import OpenedTables, open_table, python_values, rows
from shardpost.delta.storage import exists
from shardpost.delta.table import text_literal
from shardpost.kafka.coordinates import total_size
from shardpost.settings import Settings

FOLDER = "letter-index"
_NAME = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")
# A letter's newest step, with the facts of its newest failure, and where the record of that is.
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("state", _NAME),
        ("attempt", pa.int32()),
        ("at", _TIME),
        ("topic", _NAME),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("due", _TIME),
        ("generation", pa.int32()),
        ("key", pa.string()),
        ("origin_topic", _NAME),
        ("fingerprint", _NAME),
        ("origin_key", pa.binary()),
        ("failed_state", _NAME),
        ("failed_attempt", pa.int32()),
        ("failed_topic", _NAME),
        ("failed_partition", pa.int32()),
        ("failed_offset", pa.int64()),
        ("failed_generation", pa.int32()),
    ]
)
_FIELDS = {one.name: one for one in SCHEMA}
FACTS = ("origin_topic", "fingerprint", "origin_key")
_META = b"shardpost"
# Where the record of an error is: topic, generation, partition, offset.
Place = tuple[str, int, int, int]
_building = threading.Lock()


@dataclass(frozen=True)
class LetterIndex:
    """The letters as rows of SCHEMA, newest first, of which those with a true `mask` count.

    `errors` are the texts that the table does not have yet, by their places; `unread` is how many
    records of the topics are not among these: too many for one question, a sweep reads them.
    """

    rows: pa.Table
    mask: pa.ChunkedArray | None = None
    errors: Mapping[Place, str] = field(default_factory=dict)
    unread: int = 0


def open_index(settings: Settings) -> LetterIndex:
    """Return all letters as they are now, by the table and what the topics have after it."""
    table = open_table(settings, DEAD_LETTERS) if exists(settings, DEAD_LETTERS) else None
    progress = read_progress(settings, table, partitions(settings))
    unread = total_size(progress.unread)
    new: list[Step] = []
    if unread <= FEW_OFFSETS:
        new, unread = [*letters_table.not_in_table(settings, progress)], 0
    base: pa.Table = SCHEMA.empty_table()
    newer: Sequence[Step] = ()
    if table is not None:
        base, newer = _base(settings, table, progress)
    errors = {_place(step): step.error for step in new if step.error}
    changed = [*newer, *new]
    if not changed:
        return LetterIndex(base, unread=unread)
    rows, mask = _with_changes(base, changed, progress.generations)
    return LetterIndex(rows, mask, errors, unread)


def _base(
    settings: Settings, table: DeltaTable, progress: TableProgress
) -> tuple[pa.Table, Sequence[Step]]:
    """Return the file's rows, and the table's steps since; the file is made anew if need be."""
    path = settings.folder(FOLDER) / f"{table.metadata().id}.arrow"
    found = _changes(settings, table, progress, path)
    if found is None:
        with _building:
            found = _changes(settings, table, progress, path)  # another thread may have made it
            if found is None:
                _write(path, _made(settings, table, progress))
                found = _mapped(path), []
    return found


def _changes(
    settings: Settings, table: DeltaTable, progress: TableProgress, path: Path
) -> tuple[pa.Table, Sequence[Step]] | None:
    """Return the file's rows and what came since; None if it is not a beginning of this table."""
    try:
        base = _mapped(path)
        known = json.loads((base.schema.metadata or {})[_META])
    except (OSError, pa.ArrowInvalid, KeyError, ValueError):
        return None
    if known["generations"] != progress.generations or known["version"] > table.version():
        return None
    if known["version"] == table.version():
        return base, []
    count = _row_count(table) - known["rows"]
    if not 0 <= count <= FEW:
        return None
    newer = _steps_since(settings, table, progress, known["next"]) if count else []
    return (base, newer) if len(newer) == count else None  # else old letters were removed


def _row_count(table: DeltaTable) -> int:
    return sum(pa.chunked_array(table.get_add_actions().column("num_records")).to_pylist())


def _steps_since(
    settings: Settings, table: DeltaTable, progress: TableProgress, since: Mapping[str, int]
) -> list[Step]:
    later = [
        f"(topic = {text_literal(at.topic)} AND generation = {progress.generations[at.topic]}"
        f' AND "partition" = {at.partition} AND "offset" >= {since.get(str(at), 0)})'
        for at, offset in progress.next_offsets.items()
        if offset > since.get(str(at), 0)
    ]
    if not later:
        return []
    return letters_table.steps_where(settings, " OR ".join(later), table.version())


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _write(path: Path, rows: pa.Table) -> None:
    """Write the file; who reads the one before it goes on reading that."""
    own = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    try:
        with pa.OSFile(str(own), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)
    for other in path.parent.glob("*.arrow"):  # of a table that was made anew
        if other != path:
            other.unlink(missing_ok=True)


# The order of a letter's steps, as Step.order has it, in one number: no offset reaches 2^48.
_ORDER = f'CAST({letters_table.STAGE} AS BIGINT) * {1 << 48} + "offset"'
_PLAIN = f"""
SELECT id, state, attempt, at, topic, "partition", "offset", due, generation, key, origin_topic,
  fingerprint, origin_key, {_ORDER} AS place
FROM dead_letters WHERE attempt IS NOT NULL"""  # noqa: S608 - constants
# The fingerprint of an error without text, which is none.
_NO_ERROR = "error-00000000"


def _made(settings: Settings, table: DeltaTable, progress: TableProgress) -> pa.Table:
    """Return the letters of one version of the table.

    Column by column, but for those of deleted topics, of tombstones written by hand, and of names
    that depend on others: these are few, and folded as `current_letters` folds them all.
    """
    opened = OpenedTables(settings, {DEAD_LETTERS: table.version()})
    odd, of_odd = _odd_names(opened, progress.generations), list[Step]()
    if odd:
        names = _literals(odd)
        condition = f"id IN ({names}) OR coalesce(key, id) IN ({names})"
        of_odd = letters_table.steps_where(settings, condition, table.version())
    odd |= {step.id for step in of_odd}
    and_plain = f" AND id NOT IN ({_literals(odd)})" if odd else ""
    rows = _plain_letters(opened, f"{_PLAIN}{and_plain}")
    if odd:
        folded = _folded(of_odd, progress.generations)
        rows = _newest_first(pa.concat_tables([rows, folded]).unify_dictionaries())
    known = {
        "version": table.version(),
        "rows": _row_count(table),
        "generations": progress.generations,
        "next": {str(at): offset for at, offset in progress.next_offsets.items()},
    }
    return rows.combine_chunks().replace_schema_metadata({_META: json.dumps(known)})


def _literals(names: Collection[str]) -> str:
    return ", ".join(map(text_literal, sorted(names)))


def _plain_letters(opened: OpenedTables, sql: str) -> pa.Table:
    """Return the newest step of each letter with its newest failure, newest first."""
    parts = [_converted(pa.Table.from_batches([part])) for part in opened.batches(sql)]
    if not parts:
        return SCHEMA.empty_table()
    steps = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    del parts
    codes = pa.concat_arrays([part.indices for part in steps["id"].dictionary_encode().chunks])
    in_order = pc.sort_indices(steps["place"])
    is_failure = pc.or_(
        pc.is_valid(steps["origin_topic"]),
        pc.fill_null(pc.not_equal(steps["fingerprint"].cast(pa.string()), _NO_ERROR), False),
    )
    newest = _last_of_each(codes, in_order)
    failures = _last_of_each(codes, in_order.filter(pc.take(is_failure, in_order)))
    order = pc.sort_indices(
        pa.table([steps[name].take(newest["row"]) for name in ("at", "id")], ["at", "id"]),
        sort_keys=[("at", "descending"), ("id", "ascending")],
    )
    newest = newest.take(order)
    failed = failures["row"].take(pc.index_in(newest["code"], failures["code"]))
    facts = pc.coalesce(failed, newest["row"])
    columns = []
    for name in SCHEMA.names:
        of = newest["row"]
        if name.startswith("failed_"):
            name, of = name.removeprefix("failed_"), failed
        elif name in FACTS:
            of = facts
        columns.append(steps[name].take(of))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _last_of_each(codes: pa.Array, order: pa.Array) -> pa.Table:
    """Return each code and the last row that has it, of rows in that order."""
    rows = pa.Table.from_arrays([codes.take(order), order], ["code", "row"])
    found = rows.group_by("code", use_threads=False).aggregate([("row", "last")])
    return pa.Table.from_arrays([found["code"], found["row_last"]], ["code", "row"])


def _odd_names(opened: OpenedTables, generations: Generations) -> set[str]:
    sql = (
        "SELECT DISTINCT id FROM dead_letters WHERE attempt IS NULL OR strpos(id, '~') > 0"  # noqa: S608
        f" OR {letters_table.is_past(generations)}"
    )
    found = {str(name) for name in opened.query(sql)["id"].to_pylist()}
    return found | {name.rpartition("~")[0] for name in found if "~" in name}


def _converted(found: pa.Table) -> pa.Table:
    """Return a part of the steps with names as numbers: many rows have the same few."""
    columns = []
    for name in found.column_names:
        field = _FIELDS.get(name)
        column = found[name]
        if field is not None:
            is_name = field.type == _NAME
            column = (
                column.cast(pa.string()).dictionary_encode() if is_name else column.cast(field.type)
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, found.column_names)


def _newest_first(rows: pa.Table) -> pa.Table:
    order = pc.sort_indices(
        pa.Table.from_arrays([rows["at"], rows["id"]], ["at", "id"]),
        sort_keys=[("at", "descending"), ("id", "ascending")],
    )
    return rows.unify_dictionaries().take(order)


def _with_changes(
    base: pa.Table, changed: Sequence[Step], generations: Generations
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the rows of letters that have changed before those of the file, and which count."""
    names = {step.id for step in changed}
    names |= {name.rpartition("~")[0] for name in names if "~" in name}
    names |= {f"{step.id}~{step.partition}" for step in changed}
    is_changed = pc.is_in(base["id"], pa.array(sorted(names), pa.string()))
    if keys := sorted({step.id for step in changed if step.is_by_hand}):
        of_keys = pc.is_in(base["key"], pa.array(keys, pa.string()))
        is_changed = pc.or_(is_changed, of_keys)
    before = steps_of(base.take(pc.indices_nonzero(is_changed)))
    rows = _folded([*before, *changed], generations)
    mask = pa.chunked_array(
        [pa.array([True] * rows.num_rows, pa.bool_()), *pc.invert(is_changed).chunks], pa.bool_()
    )
    return pa.concat_tables([rows, base.replace_schema_metadata()]).unify_dictionaries(), mask


def _folded(steps: Iterable[Step], generations: Generations) -> pa.Table:
    """Return the letters of steps as rows, newest first; the place of an error is its text here."""
    failures: dict[str, Step] = {}
    marked = []
    for step in steps:
        if step.error or step.origin_topic:
            mark = str(_place(step))
            failures[mark] = step
            step = replace(step, error=mark)
        marked.append(step)
    newest = newest_steps(marked, generations).values()
    in_order = sorted(newest, key=lambda step: (-step.at.timestamp(), step.id))
    rows = [_row(step, failures.get(step.error or "")) for step in in_order]
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(step: Step, failed: Step | None) -> dict[str, Any]:
    found = {name: getattr(step, name) for name in SCHEMA.names if not name.startswith("failed_")}
    if failed is not None:
        found |= {
            f"failed_{name}": getattr(failed, name)
            for name in ("state", "attempt", "topic", "partition", "offset", "generation")
        }
        found["origin_key"] = failed.origin_key
    return found


def steps_of(rows: pa.Table) -> Iterator[Step]:
    """Yield the newest step of each letter, and before it its newest failure where that is another.

    The error of a failure is not there: a text that is not empty stands for it.
    """
    columns = [python_values(rows[name]) for name in SCHEMA.names]
    for values in zip(*columns, strict=True):
        row = dict(zip(SCHEMA.names, values, strict=True))
        failed = {
            name.removeprefix("failed_"): row.pop(name)
            for name in SCHEMA.names
            if name.startswith("failed_")
        }
        row["state"] = LetterState(row["state"])
        if failed["offset"] is None:
            yield Step(**row)
            continue
        failure = {**row, **failed, "state": LetterState(failed["state"]), "error": "…"}
        is_newest = all(row[name] == failure[name] for name in ("topic", "partition", "offset"))
        if not is_newest:
            yield Step(**failure)
            yield Step(**{**row, **dict.fromkeys(FACTS)})
        else:
            yield Step(**failure)


def _place(step: Step) -> Place:
    return step.topic, step.generation, step.partition, step.offset


def error_texts(
    settings: Settings, index: LetterIndex, places: Collection[Place]
) -> dict[Place, str]:
    """Return the texts of errors by their places, of those that are there."""
    found = {place: index.errors[place] for place in places if place in index.errors}
    asked = [place for place in places if place not in found]
    if not asked or not exists(settings, DEAD_LETTERS):
        return found
    columns = ((text_literal(topic), *map(str, numbers)) for topic, *numbers in asked)
    sets = (", ".join(sorted({*values})) for values in zip(*columns, strict=True))
    topics, generations, numbers, offsets = sets
    # Some more than are asked for, which is sooner than to compare each row with each place.
    sql = f"""
    SELECT topic, generation, "partition", "offset", error FROM dead_letters
    WHERE "offset" IN ({offsets}) AND "partition" IN ({numbers}) AND topic IN ({topics})
      AND generation IN ({generations})"""  # noqa: S608 - literals
    for row in rows(settings, sql, {DEAD_LETTERS: None}):
        place = row["topic"], row["generation"], row["partition"], row["offset"]
        if row["error"] is not None and place in asked:
            found[place] = row["error"]
    return found
