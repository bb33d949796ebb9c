"""The table `dead_letters`: reading letters, and appending the steps of records.

Queries use the table and the records not yet in it, so that they are right even before the first
sweep. Steps are appended for exact offsets, committed with them: the next sweep appends what an
interrupted one did not.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from shardpost.dead_letters.letter_topics import TableProgress, current_progress, read_progress
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, LetterState
from shardpost.dead_letters.model.letter_history import (
    Generations,
    Step,
    in_order,
    newest_steps,
    step_of,
)
from shardpost.delta import file_statistics, parquet_files, storage, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import rows
from shardpost.delta.table import text_literal
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import OffsetRange, total_size
from shardpost.values.retry_settings import RetryRules
from shardpost.wording import counted

SCHEMA = arrow_schema(DEAD_LETTERS)
# For this many days old versions of the table remain readable.
KEEP_DAYS = 7

STEP = (
    'id, state, attempt, at, topic, "partition", "offset", origin_topic, error, fingerprint,'
    " delayed_from, jitter, generation, key, origin_partition, origin_offset, origin_key"
)
# Its place in the order of a letter's life, like Step.order without the offset.
STAGE = "attempt * 3 + CASE state WHEN 'waiting' THEN 0 WHEN 'retried' THEN 1 ELSE 2 END"
# Up to this many offsets are read in this process: faster than starting Spark tasks.
FEW_OFFSETS = 20_000
# Steps that are converted to Arrow at a time.
PART_ROWS = 10_000
# The maintenance writes one version a week.
MOST_CONFLICTS = 2

# Calls a function for each group of ranges in its own Spark task; returns the results.
InTasks = Callable[
    [Callable[[Sequence[OffsetRange]], AddAction | None], Sequence[Sequence[OffsetRange]]],
    Iterable[AddAction | None],
]


def steps_where(
    installation: Installation, condition: str, version: int | None = None
) -> list[Step]:
    """Return the steps of the table that meet a condition, in SQL; None: at the newest version."""
    if not storage.exists(installation.tables, DEAD_LETTERS):
        return []
    sql = f"SELECT {STEP} FROM dead_letters WHERE {condition}"  # noqa: S608 - ours
    found = rows(installation.tables, sql, {DEAD_LETTERS: version})
    return steps_in(found, installation.settings.retry_rules)


def letters_named(installation: Installation, names: Collection[str]) -> dict[str, Step]:
    """Return the newest steps of named letters; ShardpostError if the table lacks too many."""
    progress = current_progress(installation)
    if total_size(progress.unread) > FEW_OFFSETS:
        raise ShardpostError(
            f"{counted(total_size(progress.unread), 'record')} of letters were written since the"
            " last sweep: their states are known after the next sweep"
        )
    named = ", ".join(map(text_literal, sorted(names))) or "''"
    old = steps_where(installation, f"id IN ({named}) OR attempt IS NULL")
    new = (s for s in not_in_table(installation, progress) if s.id in names or s.is_by_hand)
    return newest_steps([*old, *new], progress.generations)


def origins(installation: Installation, topic: str) -> set[tuple[int, int]]:
    """Return (partition, offset) of all records of a topic that ever became a letter."""
    places = set()
    if storage.exists(installation.tables, DEAD_LETTERS):
        sql = (
            "SELECT DISTINCT origin_partition, origin_offset FROM dead_letters"  # noqa: S608
            f" WHERE origin_topic = {text_literal(topic)}"
            " AND origin_partition IS NOT NULL AND origin_offset IS NOT NULL"
        )
        table = rows(installation.tables, sql, {DEAD_LETTERS: None})
        places = {(row["origin_partition"], row["origin_offset"]) for row in table}
    for step in not_in_table(installation, current_progress(installation)):
        partition, offset = step.origin_partition, step.origin_offset
        if step.origin_topic == topic and partition is not None and offset is not None:
            places.add((partition, offset))
    return places


def life(installation: Installation, letter_id: str) -> list[Step]:
    """Return the steps of one letter, in the order of its life."""
    new = [
        step
        for step in not_in_table(installation, current_progress(installation))
        if step.id == letter_id or step.is_by_hand
    ]

    def of(name: str, more: str = "") -> list[Step]:
        old = steps_where(installation, f"id = {text_literal(name)}{more}")
        return [*old, *(step for step in new if step.id == name)]

    steps = of(letter_id)
    for key in {step.key for step in steps if step.key}:
        by_hand = (step for step in of(key, " AND attempt IS NULL") if step.is_by_hand)
        steps += [step for step in by_hand if any(map(step.removes, steps))]
    return [*in_order(steps)]


def open_table(tables: storage.Tables) -> DeltaTable:
    """Return the table as it is now, created if there is none."""
    return storage.writable(tables, DEAD_LETTERS, KEEP_DAYS)


def catch_up(installation: Installation, counts: Mapping[str, int], in_tasks: InTasks = map) -> int:
    """Append the steps of all offsets that the table does not have; return how many offsets.

    `counts` has the partitions of both topics. Retries if the maintenance of the tables committed a
    version meanwhile; raises VersionExistsError if that keeps happening.
    """

    def once() -> int:
        table = open_table(installation.tables)
        progress = read_progress(installation.kafka, table, counts)
        count = total_size(progress.unread)
        if progress.transactions:
            append(installation, table, progress, in_tasks if count > FEW_OFFSETS else map)
        return count

    return table_log.retrying(DEAD_LETTERS, once, MOST_CONFLICTS)


def append(
    installation: Installation, table: DeltaTable, progress: TableProgress, in_tasks: InTasks
) -> None:
    """Append the steps of offsets that the table does not have.

    The same version merges small files of earlier sweeps if there are many. Raises
    VersionExistsError if another writer committed since the table was opened.
    """
    version = table.version()
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # an interrupted run leaves a file of another name
    added, old = parquet_files.merge_small(installation.tables, DEAD_LETTERS, version, folder)
    groups = [progress.unread] if in_tasks is map else [[range_] for range_ in progress.unread]
    write = partial(_write_steps, installation, replace(progress, unread=[]), folder)
    written = [*filter(None, in_tasks(write, groups))]
    file_statistics.require_seen(installation.tables, DEAD_LETTERS, (file.path for file in written))
    added += written
    try:
        done = progress.transactions
        table_log.commit(installation.tables, DEAD_LETTERS, version, added, old, done)
    except table_log.VersionExistsError as error:
        raise table_log.VersionExistsError(f"{error}; sweep again") from None


def _write_steps(
    installation: Installation, progress: TableProgress, folder: str, ranges: Sequence[OffsetRange]
) -> AddAction | None:
    """Write the steps of ranges as one uncommitted file of this attempt; None if there are none."""
    steps = _steps_of(installation, progress, ranges)
    parts = map(as_rows, iter(lambda: [*islice(steps, PART_ROWS)], []))
    path = f"{folder}/{uuid.uuid4()}.parquet"
    return parquet_files.write_parts(installation.tables, DEAD_LETTERS, parts, path)[0]


def as_rows(steps: Sequence[Step]) -> pa.Table:
    """Return steps as rows of the table."""
    columns = {name: [getattr(step, name) for step in steps] for name in SCHEMA.names}
    return pa.Table.from_pydict(columns, SCHEMA)


def steps_in(found: Iterable[dict[str, Any]], rules: RetryRules) -> list[Step]:
    """Return rows of STEP as steps."""
    return [Step(**(row | {"state": LetterState(row["state"])})).by(rules) for row in found]


def not_in_table(installation: Installation, progress: TableProgress) -> Iterator[Step]:
    """Yield the steps in the topics that are not yet in the table."""
    rules = installation.settings.retry_rules
    return (step.by(rules) for step in _steps_of(installation, progress, progress.unread))


def _steps_of(
    installation: Installation, progress: TableProgress, ranges: Iterable[OffsetRange]
) -> Iterator[Step]:
    """Yield the steps in ranges; when they are due is for the reader's rules to say."""
    for range_ in ranges:
        generation = progress.generations[range_.topic]
        partition, is_store = range_.topic_partition, range_.topic == progress.store
        count = progress.partitions[range_.topic] if is_store else None
        messages = read_to_end(installation.kafka, partition, start=range_.first, committed=True)
        for record in map(record_of, messages):
            if record.offset >= range_.until:
                break
            step = step_of(record, store_partitions=count)
            if step is not None:
                yield replace(step, generation=generation) if generation else step


def is_past(generations: Generations) -> str:
    """Return an SQL condition: the topic of a step was deleted since."""
    return " OR ".join(
        f"(topic = {text_literal(topic)} AND generation < {generation})"
        for topic, generation in generations.items()
    )
