"""The table `dead_letters` without a JVM: how far it has read its topics, and what it says.

Questions are answered from the table and from the records that it has not read yet, so they are
true also before the first sweep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from shardpost.dead_letters.model.life import Step, fold, in_order, step_of
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.dead_letters.model.transitions import LetterState
from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, path_of, rows
from shardpost.delta.sql import text_literal
from shardpost.errors import ShardpostError
from shardpost.kafka import offsets, reading
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.offset_ranges import OffsetRange, Watermarks, ends
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


def standing(settings: Settings) -> dict[str, Step]:
    """Return where each letter stands that the table or the topics know."""
    sql = f"{_NEWEST} SELECT {_STEP} FROM ranked WHERE back = 1"  # noqa: S608 - constants
    by_hand = f"SELECT {_STEP} FROM dead_letters WHERE attempt IS NULL"  # noqa: S608
    known = (*_steps(settings, sql), *_steps(settings, by_hand))
    return fold(chain(known, _not_in_table(settings)))


def life(settings: Settings, letter_id: str) -> list[Step]:
    """Return the steps of one letter, in the order of its life."""
    columns = f"{_STEP}, origin_offset, origin_key"
    sql = f"SELECT {columns} FROM dead_letters WHERE id = {text_literal(letter_id)}"  # noqa: S608
    new = (step for step in _not_in_table(settings) if step.id == letter_id)
    return [*in_order((*_steps(settings, sql), *new))]


def opened(settings: Settings) -> DeltaTable:
    """Return the table as it is now, made if it is not there."""
    table_log.create(settings, DEAD_LETTERS, KEEP_DAYS)
    return DeltaTable(path_of(settings, DEAD_LETTERS))


def append(settings: Settings, table: DeltaTable, new: Sequence[OffsetRange]) -> None:
    """Append the steps of offsets that the table has not, in this process: for a few of them."""
    found = [row for place in new for row in _rows_of(settings, place)]
    positions = [Transaction(position_name(place), place.until) for place in new]
    once = CommitProperties(max_commit_retries=0, app_transactions=positions)
    try:
        rows_ = pa.Table.from_pylist(found, SCHEMA)
        write_deltalake(table, rows_, mode="append", commit_properties=once)
    except CommitFailedError as error:
        raise ShardpostError(
            f"dead_letters: another sweep writes to the table: {error}; sweep again"
        ) from None


def _rows_of(settings: Settings, place: OffsetRange) -> Iterator[dict[str, Any]]:
    return map(asdict, _steps_of(settings, place))


def _steps(settings: Settings, sql: str) -> list[Step]:
    if not exists(settings, DEAD_LETTERS):
        return []
    return [_step(row) for row in rows(settings, sql, {DEAD_LETTERS: None})]


def _step(row: dict[str, Any]) -> Step:
    return Step(**(row | {"state": LetterState(row["state"])}))


def _not_in_table(settings: Settings) -> Iterator[Step]:
    for place in unread(settings):
        yield from _steps_of(settings, place)


def _steps_of(settings: Settings, place: OffsetRange) -> Iterator[Step]:
    """Yield the steps of committed records of a range."""
    is_store = place.topic == settings.topic("dead-letters")
    rules = settings.retry_rules
    messages = reading.read_to_end(
        settings, TopicPartition(place.topic, place.partition), start=place.first, committed=True
    )
    for record in map(record_of, messages):
        if record.offset >= place.until:
            return
        step = step_of(record, rules, is_store=is_store)
        if step is not None:
            yield step


def position_name(place: OffsetRange) -> str:
    """Return under which name the position of a partition is kept."""
    return f"{place.topic}/{place.partition}"


def unread(settings: Settings, table: DeltaTable | None = None) -> list[OffsetRange]:
    """Return the committed offsets of dead-letters and parking-lot that the table has not.

    That is the table as it was opened, so that what is appended to that version is appended once.
    """
    if table is None and exists(settings, DEAD_LETTERS):
        table = DeltaTable(path_of(settings, DEAD_LETTERS))
    found = [
        _unread(table, topic, partition, mark)
        for topic, partitions in _marks(settings, committed=True).items()
        for partition, mark in partitions.items()
    ]
    return [one for one in found if one.first < one.until]


def held_back(settings: Settings) -> list[OffsetRange]:
    """Return the offsets of dead-letters and parking-lot behind an open transaction.

    Nobody can see what is there before that transaction ends.
    """
    every = ends(_marks(settings, committed=False))
    stable = ends(_marks(settings, committed=True))  # asked last: what ended meanwhile is none
    found = [
        OffsetRange(topic, partition, stable[topic][partition], end)
        for topic, partitions in every.items()
        for partition, end in partitions.items()
    ]
    return [one for one in found if one.first < one.until]


def _marks(settings: Settings, *, committed: bool) -> Watermarks:
    topics = [settings.topic("dead-letters"), settings.topic("parking-lot")]
    counts = offsets.partition_counts(settings, topics)
    return offsets.watermarks(settings, counts, committed=committed)


def _unread(
    table: DeltaTable | None, topic: str, partition: int, mark: tuple[int, int]
) -> OffsetRange:
    low, end = mark
    whole = OffsetRange(topic, partition, low, end)
    read = table.transaction_version(position_name(whole)) if table else None
    return whole if read is None else OffsetRange(topic, partition, max(low, read), end)
