"""Letters as Arrow rows: the newest step, and the place of the newest failure.

Millions of steps are folded column by column; the few that depend on other letters, and recent
changes, step by step as in letter_history.py. Both give the same result.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, LetterState
from shardpost.dead_letters.model.letter_history import Generations, Step, newest_steps
from shardpost.delta.query import OpenedTables, python_values
from shardpost.installation import Installation
from shardpost.values.retry_settings import RetryRules

_NAME = pa.dictionary(pa.int32(), pa.string())
_NAMES = frozenset({"state", "topic", "origin_topic", "fingerprint"})
FACTS = ("origin_topic", "fingerprint", "origin_key")
# Of the newest step, with the facts of its newest failure.
STEP_COLUMNS = (
    *("id", "state", "attempt", "at", "topic", "partition", "offset"),
    *("delayed_from", "jitter", "generation", "key", *FACTS),
)
_OF_FAILURE = ("state", "attempt", "topic", "partition", "offset", "generation")
_TYPES = {
    name: _NAME if name in _NAMES else letters_table.SCHEMA.field(name).type
    for name in STEP_COLUMNS
}
# A letter's newest step, with the facts of its newest failure, and where the record of that is.
SCHEMA = pa.schema([*_TYPES.items(), *((f"failed_{name}", _TYPES[name]) for name in _OF_FAILURE)])
_FIELDS = {one.name: one for one in SCHEMA}
# Where the record of an error is: topic, generation, partition, offset.
Place = tuple[str, int, int, int]

# The order of a letter's steps, like Step.order, as one number: offsets are below 2^48.
_ORDER = f'CAST({letters_table.STAGE} AS BIGINT) * {1 << 48} + "offset"'
_PLAIN = f"""
SELECT {", ".join(f'"{name}"' for name in STEP_COLUMNS)}, {_ORDER} AS place
FROM dead_letters WHERE attempt IS NOT NULL"""  # noqa: S608 - constants
_ODD_NAMES = """
WITH own AS (
  SELECT DISTINCT id FROM dead_letters
  WHERE attempt IS NULL OR strpos(id, '~') > 0 OR {is_past}
)
SELECT id FROM own
UNION SELECT regexp_replace(id, '~[^~]*$', '') FROM own WHERE strpos(id, '~') > 0"""
# For a letter with another key, later steps such as parking no longer have that key.
_WITH_DEPENDENT = """
SELECT dead_letters.id FROM dead_letters LEFT SEMI JOIN odd_names ON dead_letters.id = odd_names.id
UNION SELECT dead_letters.id FROM dead_letters
LEFT SEMI JOIN odd_names ON dead_letters.key = odd_names.id"""
_STEPS_OF_ODD = f"""
SELECT {letters_table.STEP} FROM dead_letters WHERE id IN (SELECT id FROM odd)"""  # noqa: S608
_NOT_ODD = " AND NOT EXISTS (SELECT 1 FROM odd WHERE odd.id = dead_letters.id)"
# The fingerprint of an error without text.
_NO_ERROR = "error-00000000"


def letters_of(installation: Installation, version: int, generations: Generations) -> pa.Table:
    """Return the letters of one version of the table, newest first."""
    opened = OpenedTables(installation.tables, {DEAD_LETTERS: version})
    of_odd = odd_steps(opened, installation.settings.retry_rules, generations)
    rows = _plain_letters(opened, f"{_PLAIN}{_NOT_ODD if of_odd else ''}")
    if of_odd:
        rows = pa.concat_tables([rows, folded(of_odd, generations)]).unify_dictionaries()
        rows = rows.take(_newest_first(rows["at"], rows["id"]))
    return rows.combine_chunks()


def odd_steps(opened: OpenedTables, rules: RetryRules, generations: Generations) -> list[Step]:
    """Return all steps of names whose letter does not follow from their own steps alone.

    These are steps of deleted topics, tombstones written by hand, and names of misplaced letters,
    which depend on others. There may be many if somebody removed many letters by hand, so the names
    are joined in the engine's tables.
    """
    opened.keep("odd_names", _ODD_NAMES.format(is_past=letters_table.is_past(generations)))
    opened.keep("odd", _WITH_DEPENDENT)
    return letters_table.steps_in(opened.rows(_STEPS_OF_ODD), rules)


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
    newest = newest.take(_newest_first(*(steps[one].take(newest["row"]) for one in ("at", "id"))))
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


def _converted(found: pa.Table) -> pa.Table:
    """Return a part of the steps with names as numbers: many rows have the same few."""
    columns = []
    for name in found.column_names:
        field = _FIELDS.get(name)
        column = found[name]
        if field is not None and field.type == _NAME:
            column = column.cast(pa.string()).dictionary_encode()
        elif field is not None:
            column = column.cast(field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, found.column_names)


def _newest_first(at: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.Array:
    return pc.sort_indices(
        pa.Table.from_arrays([at, ids], ["at", "id"]),
        sort_keys=[("at", "descending"), ("id", "descending")],
    )


def with_changes(
    base: pa.Table, changed: Sequence[Step], generations: Generations
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the rows of changed letters before those of the file, and which rows count."""
    names = {step.id for step in changed}
    names |= {name.rpartition("~")[0] for name in names if "~" in name}
    names |= {f"{step.id}~{step.partition}" for step in changed}
    is_changed = pc.is_in(base["id"], pa.array(sorted(names), pa.string()))
    if keys := sorted({step.id for step in changed if step.is_by_hand}):
        of_keys = pc.is_in(base["key"], pa.array(keys, pa.string()))
        is_changed = pc.or_(is_changed, of_keys)
    before = steps_of(base.take(pc.indices_nonzero(is_changed)))
    rows = folded([*before, *changed], generations)
    of_rows = pa.array([True] * rows.num_rows, pa.bool_())
    mask = pa.chunked_array([of_rows, *pc.invert(is_changed).chunks], pa.bool_())
    return pa.concat_tables([rows, base.replace_schema_metadata()]).unify_dictionaries(), mask


def folded(steps: Iterable[Step], generations: Generations) -> pa.Table:
    """Return the letters of steps as rows, newest first; the place of an error is its text here."""
    failures: dict[str, Step] = {}
    marked = []
    for step in steps:
        if step.error or step.origin_topic:
            mark = str(place_of(step))
            failures[mark] = step
            step = replace(step, error=mark)
        marked.append(step)
    newest = newest_steps(marked, generations).values()
    rows = []
    for step in sorted(newest, key=lambda step: (step.at, step.id), reverse=True):
        row = {name: getattr(step, name) for name in STEP_COLUMNS}
        if (failed := failures.get(step.error or "")) is not None:
            row |= {f"failed_{name}": getattr(failed, name) for name in _OF_FAILURE}
            row["origin_key"] = failed.origin_key
        rows.append(row)
    return pa.Table.from_pylist(rows, SCHEMA)


def steps_of(rows: pa.Table) -> Iterator[Step]:
    """Yield the newest step of each letter after its newest failure, if different, error `…`."""
    columns = [python_values(rows[name]) for name in SCHEMA.names]
    for values in zip(*columns, strict=True):
        row = dict(zip(SCHEMA.names, values, strict=True))
        failed = {name: row.pop(f"failed_{name}") for name in _OF_FAILURE}
        row["state"] = LetterState(row["state"])
        if failed["offset"] is None:
            yield Step(**row)
            continue
        failure = {**row, **failed, "state": LetterState(failed["state"]), "error": "…"}
        yield Step(**failure)
        if any(row[name] != failure[name] for name in ("topic", "partition", "offset")):
            yield Step(**{**row, **dict.fromkeys(FACTS)})


def place_of(step: Step) -> Place:
    """Return where the record of a step is."""
    return step.topic, step.generation, step.partition, step.offset
