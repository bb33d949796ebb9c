"""The table `dead_letters` without a JVM: what it says of letters, and how a few steps are added.

Questions are answered from the table and from the records that it has not read yet, so the answers
are right also before the first sweep.
"""

import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from shardpost.dead_letters.letters_table_offsets import TableProgress, read_progress
from shardpost.dead_letters.model.letter_history import (
    Generations,
    Step,
    in_order,
    newest_steps,
)
from shardpost.dead_letters.model.letter_state import LetterState
from shardpost.dead_letters.model.record_steps import step_of
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.delta import parquet_files, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, path_of, rows
from shardpost.delta.sql import text_literal
from shardpost.delta.table_log import VersionExistsError
from shardpost.errors import ShardpostError
from shardpost.kafka import offsets, reading
from shardpost.kafka.messages import record_of
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings

SCHEMA = arrow_schema(DEAD_LETTERS)
# For so many days old versions of the table stay readable.
KEEP_DAYS = 7

_COLUMNS = (
    'id, state, attempt, at, topic, "partition", "offset", origin_topic, error, fingerprint, due'
)
_GENERATION = "coalesce(generation, 0) AS generation"  # older versions of Shardpost wrote none
_STEP = f"{_COLUMNS}, {_GENERATION}, key"
# The newest step of each letter in the topics that are there, and in those before them, with what
# only an earlier one says of it. Tombstones that were written by hand have no attempt.
_NEWEST = """
WITH steps AS (SELECT *, {is_past} AS is_past FROM dead_letters),
ranked AS (
  SELECT id, state, attempt, at, topic, "partition", "offset", due, generation, key,
    first_value(origin_topic) IGNORE NULLS OVER life AS origin_topic,
    first_value(error) IGNORE NULLS OVER life AS error,
    first_value(fingerprint) IGNORE NULLS OVER life AS fingerprint,
    row_number() OVER life AS back
  FROM steps
  WHERE attempt IS NOT NULL
  WINDOW life AS (
    PARTITION BY id, is_past
    ORDER BY CASE WHEN is_past THEN coalesce(generation, 0) END DESC, attempt DESC,
      CASE state WHEN 'waiting' THEN 0 WHEN 'retried' THEN 1 ELSE 2 END DESC, "offset" DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
  )
)
"""


def current_letters(settings: Settings) -> dict[str, Step]:
    """Return the newest step of each letter in the table or the topics, by its id."""
    progress = read_progress(settings)
    ranked = _NEWEST.format(is_past=_is_past(progress.generations))
    newest = f"{ranked} SELECT {_STEP} FROM ranked WHERE back = 1"  # noqa: S608 - constants
    by_hand = f"SELECT {_STEP} FROM dead_letters WHERE attempt IS NULL"  # noqa: S608
    in_table = (*_query(settings, newest), *_query(settings, by_hand))
    not_in_table = _not_in_table(settings, progress)
    return newest_steps(chain(in_table, not_in_table), progress.generations)


def life(settings: Settings, letter_id: str) -> list[Step]:
    """Return the steps of one letter, in the order of its life."""
    columns = f"{_STEP}, origin_offset, origin_key"
    new = [
        step
        for step in _not_in_table(settings, read_progress(settings))
        if step.id == letter_id or step.is_by_hand
    ]

    def of(name: str, more: str = "") -> list[Step]:
        sql = f"SELECT {columns} FROM dead_letters WHERE id = {text_literal(name)}{more}"  # noqa: S608
        return [*_query(settings, sql), *(step for step in new if step.id == name)]

    found = of(letter_id)
    for key in {step.key for step in found if step.key}:
        by_hand = (step for step in of(key, " AND attempt IS NULL") if step.is_by_hand)
        found += [step for step in by_hand if any(map(step.removes, found))]
    return [*in_order(found)]


def open_table(settings: Settings) -> DeltaTable:
    """Return the table as it is now, created or given its newer columns if need be."""
    table_log.create(settings, DEAD_LETTERS, KEEP_DAYS)
    table = DeltaTable(path_of(settings, DEAD_LETTERS))
    if table_log.is_up_to_date(table, DEAD_LETTERS):
        return table
    table_log.bring_up_to_date(settings, DEAD_LETTERS, table.version())
    return DeltaTable(path_of(settings, DEAD_LETTERS))


def append(settings: Settings, table: DeltaTable, progress: TableProgress) -> None:
    """Append the steps of offsets that the table has not, in this process: for a few of them.

    In the same version, small files of earlier sweeps are merged where there are many.
    """
    version = table.version()
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # what an interrupted run left has another name
    added, old = parquet_files.merge_small(settings, DEAD_LETTERS, version, folder)
    found = [asdict(step) for step in _not_in_table(settings, progress)]
    if found:
        steps = pa.Table.from_pylist(found, SCHEMA)
        added.append(parquet_files.write(settings, DEAD_LETTERS, steps, f"{folder}/steps.parquet"))
    try:
        table_log.commit(settings, DEAD_LETTERS, version, added, old, progress.transactions)
    except VersionExistsError as error:
        raise ShardpostError(f"{error}; sweep again") from None


def _query(settings: Settings, sql: str) -> list[Step]:
    if not exists(settings, DEAD_LETTERS):
        return []
    return [_step(row) for row in rows(settings, sql, {DEAD_LETTERS: None})]


def _step(row: dict[str, Any]) -> Step:
    return Step(**(row | {"state": LetterState(row["state"])}))


def _not_in_table(settings: Settings, progress: TableProgress) -> Iterator[Step]:
    for range_ in progress.unread:
        generation = progress.generations[range_.topic]
        for step in _steps_in(settings, range_):
            yield replace(step, generation=generation) if generation else step


def _is_past(generations: Generations) -> str:
    """Return the SQL that tells whether the topic of a step is no more."""
    return " OR ".join(
        f"(topic = {text_literal(topic)} AND coalesce(generation, 0) < {generation})"
        for topic, generation in generations.items()
    )


def _steps_in(settings: Settings, range_: OffsetRange) -> Iterator[Step]:
    """Yield the steps of committed records of a range."""
    store = settings.topic("dead-letters")
    count = offsets.partition_counts(settings, [store])[store] if range_.topic == store else None
    rules = settings.retry_rules
    messages = reading.read_to_end(
        settings, range_.topic_partition, start=range_.first, committed=True
    )
    for record in map(record_of, messages):
        if record.offset >= range_.until:
            return
        step = step_of(record, rules, store_partitions=count)
        if step is not None:
            yield step
