"""The table `dead_letters` without a JVM: what it says of letters, and how a few steps are added.

Questions are answered from the table and from the records that it has not read yet, so the answers
are right also before the first sweep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from shardpost.dead_letters.letters_table_offsets import transaction_name, unread
from shardpost.dead_letters.model.letter_history import Step, in_order, newest_steps
from shardpost.dead_letters.model.letter_state import LetterState
from shardpost.dead_letters.model.record_steps import step_of
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, path_of, rows
from shardpost.delta.sql import text_literal
from shardpost.errors import ShardpostError
from shardpost.kafka import reading
from shardpost.kafka.messages import record_of
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings

SCHEMA = arrow_schema(DEAD_LETTERS)
# For so many days old versions of the table stay readable.
KEEP_DAYS = 7

_STEP = (
    'id, state, attempt, at, topic, "partition", "offset", origin_topic, error, fingerprint, due'
)
# The newest step of each letter, with what only an earlier one says of it. Tombstones that were
# written by hand have no attempt.
_NEWEST = """
WITH ranked AS (
  SELECT id, state, attempt, at, topic, "partition", "offset", due,
    first_value(origin_topic) IGNORE NULLS OVER life AS origin_topic,
    first_value(error) IGNORE NULLS OVER life AS error,
    first_value(fingerprint) IGNORE NULLS OVER life AS fingerprint,
    row_number() OVER life AS back
  FROM dead_letters
  WHERE attempt IS NOT NULL
  WINDOW life AS (
    PARTITION BY id
    ORDER BY attempt DESC,
      CASE state WHEN 'waiting' THEN 0 WHEN 'retried' THEN 1 ELSE 2 END DESC, "offset" DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
  )
)
"""


def current_letters(settings: Settings) -> dict[str, Step]:
    """Return the newest step of each letter in the table or the topics, by its id."""
    newest = f"{_NEWEST} SELECT {_STEP} FROM ranked WHERE back = 1"  # noqa: S608 - constants
    by_hand = f"SELECT {_STEP} FROM dead_letters WHERE attempt IS NULL"  # noqa: S608
    in_table = (*_query(settings, newest), *_query(settings, by_hand))
    return newest_steps(chain(in_table, _not_in_table(settings)))


def life(settings: Settings, letter_id: str) -> list[Step]:
    """Return the steps of one letter, in the order of its life."""
    columns = f"{_STEP}, origin_offset, origin_key"
    sql = f"SELECT {columns} FROM dead_letters WHERE id = {text_literal(letter_id)}"  # noqa: S608
    new = (step for step in _not_in_table(settings) if step.id == letter_id)
    return [*in_order((*_query(settings, sql), *new))]


def open_table(settings: Settings) -> DeltaTable:
    """Return the table as it is now, created if it is not there."""
    table_log.create(settings, DEAD_LETTERS, KEEP_DAYS)
    return DeltaTable(path_of(settings, DEAD_LETTERS))


def append(settings: Settings, table: DeltaTable, new: Sequence[OffsetRange]) -> None:
    """Append the steps of offsets that the table has not, in this process: for a few of them."""
    found = [asdict(step) for range_ in new for step in _steps_in(settings, range_)]
    read = [Transaction(transaction_name(one.topic_partition), one.until) for one in new]
    once = CommitProperties(max_commit_retries=0, app_transactions=read)
    try:
        steps = pa.Table.from_pylist(found, SCHEMA)
        write_deltalake(table, steps, mode="append", commit_properties=once)
    except CommitFailedError as error:
        raise ShardpostError(
            f"dead_letters: another sweep writes to the table: {error}; sweep again"
        ) from None


def _query(settings: Settings, sql: str) -> list[Step]:
    if not exists(settings, DEAD_LETTERS):
        return []
    return [_step(row) for row in rows(settings, sql, {DEAD_LETTERS: None})]


def _step(row: dict[str, Any]) -> Step:
    return Step(**(row | {"state": LetterState(row["state"])}))


def _not_in_table(settings: Settings) -> Iterator[Step]:
    for range_ in unread(settings):
        yield from _steps_in(settings, range_)


def _steps_in(settings: Settings, range_: OffsetRange) -> Iterator[Step]:
    """Yield the steps of committed records of a range."""
    is_store = range_.topic == settings.topic("dead-letters")
    rules = settings.retry_rules
    messages = reading.read_to_end(
        settings, range_.topic_partition, start=range_.first, committed=True
    )
    for record in map(record_of, messages):
        if record.offset >= range_.until:
            return
        step = step_of(record, rules, is_store=is_store)
        if step is not None:
            yield step
