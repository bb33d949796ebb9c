"""Removal from the table `dead_letters`: letters resolved long ago, a client's contact.

A letter is old if all its steps are, and Kafka no longer has any record of it, not even a
tombstone. A waiting or parked letter has one: `dead-letters` and `parking-lot` are compacted. If
its failure is reported again, sweeps and the table treat it as new.

All rows of old letters are removed in one version, so that no reader ever sees a letter without the
step that closed it. Sweeps continue meanwhile: the second writer retries.

Letters of some topics under the client's key contain its contact. Their steps are kept without the
error texts. The letters themselves remain in Kafka unchanged.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.dead_letters import letter_rows, letter_topics, letters_table
from shardpost.dead_letters.letter_index import KeptIndex, open_index
from shardpost.dead_letters.listed_letters import listed_since
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, name_of
from shardpost.dead_letters.model.letter_history import (
    Generations,
    Step,
    later_name,
    newest_steps,
    step_of,
)
from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.query import OpenedTables, rows, table_errors
from shardpost.delta.rewritten_files import commit_files, files_with_contact, without_contact
from shardpost.delta.storage import Tables
from shardpost.delta.table import time_literal
from shardpost.installation import Installation
from shardpost.instants import old_before
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import TopicPartition
from shardpost.locks.locks import after_running
from shardpost.logs import step
from shardpost.topics.guards import inspect_stores
from shardpost.wording import counted

# A sweep appends every five minutes, and this takes seconds.
MOST_CONFLICTS = 4
# The most that a time without steps counts: weeks may pass without a letter.
LONGEST_QUIET = timedelta(days=35)


def rows_with_contact(tables: Tables, topics: Collection[str], client: str) -> int:
    """Return the number of rows with the client's contact, in letters of those topics."""
    version = storage.newest_version(tables, DEAD_LETTERS)
    return 0 if version is None else sum(_find(tables, version, topics, client).values())


def erase_contact(installation: Installation, topics: Collection[str], client: str) -> int:
    """Commit a version without the contact, if present; return the number of rows with it.

    It takes the sweep's lock, waiting at most `lock_wait` for a running sweep. The topics are read
    first, so that no later sweep adds the contact to the table.
    """
    if storage.newest_version(installation.tables, DEAD_LETTERS) is None:
        return 0
    with after_running(installation.files, SWEEP_DEAD_LETTERS.name):
        step("read letters")
        letters_table.catch_up(installation, letter_topics.partitions(installation.kafka))
        version = letters_table.open_table(installation.tables).version()
        counts = _find(installation.tables, version, topics, client)
        if counts:
            own = partial(_own, topics, client.encode())
            change = partial(without_contact, DEAD_LETTERS, own)
            files = dict.fromkeys(counts, change)
            commit_files(installation.tables, DEAD_LETTERS, version, files, str(uuid.uuid4()))
    return sum(counts.values())


def _find(tables: Tables, version: int, topics: Collection[str], client: str) -> dict[str, int]:
    place, own = ("origin_key", client.encode()), partial(_own, topics, client.encode())
    return files_with_contact(tables, DEAD_LETTERS, version, place, own)


def _own(topics: Collection[str], key: bytes, rows: pa.Table) -> pa.Array:
    is_of_topic = pc.is_in(rows["origin_topic"], pa.array([*topics]))
    return pc.and_(pc.equal(rows["origin_key"], key), is_of_topic)


def may_be_forgotten(
    names: Collection[str], steps: Sequence[Step], generations: Generations
) -> set[str]:
    """Return the names of letters that can be removed without changing which letters are open.

    `steps` are all of theirs, and of letters that depend on them or on which they depend.
    """
    is_open = _open(steps, generations)
    closed = set(names) - is_open
    without = [step for step in steps if step.id not in closed]
    # A renamed letter is open only if its later name is unknown.
    opened = _open(without, generations) - is_open
    return closed - {later_name(step) for step in without if step.id in opened}


def _open(steps: Sequence[Step], generations: Generations) -> set[str]:
    newest = newest_steps(steps, generations)
    return {name for name, step in newest.items() if step.is_in_topic}


@dataclass
class OldLetters:
    """What was removed, or with `dry_run` would be: letters, and their rows in so many files."""

    dry_run: bool
    letters: int = 0
    rows: int = 0
    files: int = 0
    postponed: dict[str, str] = field(default_factory=dict)
    warning: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        verb = "would be removed" if self.dry_run else "removed"
        return [
            f"dead_letters: {counted(self.letters, 'resolved letter')} {verb}:"
            f" {counted(self.rows, 'row')} of {counted(self.files, 'file')}",
            *(f"{what}: {why}" for what, why in self.postponed.items()),
        ]


@dataclass(frozen=True)
class _Gone:
    """The letters to remove, and the keys of hand-written tombstones to remove."""

    letters: pa.StringArray
    by_hand: pa.StringArray

    def mask(self, part: pa.Table) -> Any:
        """Return for each row, with `id` and `attempt`, whether it is removed."""
        is_by_hand = pc.is_null(part["attempt"])
        of_none, of_letter = (pc.is_in(part["id"], ids) for ids in (self.by_hand, self.letters))
        return pc.if_else(is_by_hand, of_none, of_letter)

    def without(self, part: pa.Table) -> pa.Table:
        """Return the remaining rows."""
        return part.filter(pc.invert(self.mask(part)))


def remove_old(installation: Installation, now: datetime, *, dry_run: bool = False) -> OldLetters:
    """Remove the letters from the table that were resolved SHARDPOST_LETTER_DAYS ago.

    ShardpostError if Kafka cannot be read, or a topic of letters was recreated or lost records.
    """
    make = partial(_remove, installation, now, dry_run)
    with table_errors():
        try:
            return table_log.retrying(DEAD_LETTERS, make, MOST_CONFLICTS)
        except table_log.VersionExistsError as conflict:
            return OldLetters(dry_run, postponed={"dead_letters": f"nothing removed: {conflict}"})


def _remove(installation: Installation, now: datetime, dry_run: bool) -> OldLetters:
    result = OldLetters(dry_run)
    version = storage.newest_version(installation.tables, DEAD_LETTERS)
    if version is None:
        return result
    # Measured by the table's steps (the last of each day suffices), not by the clock alone.
    sql = "SELECT max(at) AS at FROM dead_letters GROUP BY date_trunc('day', at)"
    times = (row["at"] for row in rows(installation.tables, sql, {DEAD_LETTERS: version}))
    age = timedelta(days=installation.settings.letter_days)
    horizon = old_before(times, now, age, LONGEST_QUIET)
    if horizon is None or (gone := _gone(installation, version, horizon, now)) is None:
        return result
    files: dict[str, parquet_files.Change] = {}
    for path in storage.files_before(installation.tables, DEAD_LETTERS, version, "at", horizon):
        parts = parquet_files.parts(installation.tables, DEAD_LETTERS, path, ("id", "attempt"))
        if count := sum(pc.sum(gone.mask(part)).as_py() or 0 for part in parts):
            files[path] = gone.without
            result.rows += count
    result.letters, result.files = len(gone.letters), len(files)
    if files and not dry_run:
        commit_files(installation.tables, DEAD_LETTERS, version, files, str(uuid.uuid4()))
    return result


def _gone(
    installation: Installation, version: int, horizon: datetime, now: datetime
) -> _Gone | None:
    before = time_literal(horizon)
    of_letters = (
        "SELECT id FROM dead_letters WHERE attempt IS NOT NULL"  # noqa: S608 - a time
        f" GROUP BY id HAVING max(at) < {before}"
    )
    by_hand = f"SELECT DISTINCT id FROM dead_letters WHERE attempt IS NULL AND at < {before}"  # noqa: S608
    old, old_by_hand = (
        {row["id"] for row in rows(installation.tables, sql, {DEAD_LETTERS: version})}
        for sql in (of_letters, by_hand)
    )
    if not old:
        return None
    # An emptied store would make every letter look resolved.
    inspect_stores(installation, "dead-letters", "parking-lot")
    for name in _names_in_kafka(installation):
        old.discard(name)
    closed = old - listed_since(installation, open_index(installation, KeptIndex()), now).ids()
    generations = letter_topics.current_progress(installation).generations
    opened = OpenedTables(installation.tables, {DEAD_LETTERS: version})
    of_odd = letter_rows.odd_steps(opened, installation.settings.retry_rules, generations)
    odd = closed & {step.id for step in of_odd}
    letters = closed - odd | may_be_forgotten(odd, of_odd, generations)
    # Without its tombstone, a letter removed by hand would be open.
    kept = _keys_of_kept(installation.tables, version, before, letters) if old_by_hand else set()
    return _Gone(*(pa.array(sorted(ids), pa.string()) for ids in (letters, old_by_hand - kept)))


def _keys_of_kept(tables: Tables, version: int, before: str, letters: Collection[str]) -> set[str]:
    """Return the keys of remaining letters that have an old tombstone written by hand."""
    sql = f"""
    SELECT DISTINCT id, coalesce(key, id) AS letter_key FROM dead_letters LEFT SEMI JOIN (
      SELECT id AS key_by_hand FROM dead_letters WHERE attempt IS NULL AND at < {before}
    ) AS by_hand ON coalesce(key, id) = key_by_hand
    WHERE attempt IS NOT NULL"""  # noqa: S608 - a time
    closed_by_hand = rows(tables, sql, {DEAD_LETTERS: version})
    return {row["letter_key"] for row in closed_by_hand if row["id"] not in letters}


def _names_in_kafka(installation: Installation) -> Iterator[str]:
    """Yield the names of all letters with a record in Kafka, even if only a tombstone."""
    kafka = installation.kafka
    for topic, count in letter_topics.partitions(kafka).items():
        in_store = count if topic == kafka.topic("dead-letters") else None
        for number in range(count):
            for record in map(record_of, read_to_end(kafka, TopicPartition(topic, number))):
                yield name_of(record.key)
                # The tombstone of a dropped letter does not show that it was misplaced.
                yield name_of(b"%s~%d" % (record.key or b"", record.partition))
                if (found := step_of(record, store_partitions=in_store)) is not None:
                    yield found.id
