"""What is removed from the table `dead_letters`: letters resolved long ago, a client's contact.

A letter is old if every step of it is, and Kafka has no record of it any more, not even a
tombstone. One that waits or is parked has one: `dead-letters` and `parking-lot` are compacted. If
its failure is reported again, sweeps take it for a new one, as the table then does.

All rows of old letters are removed in one version, so that no reader ever finds a letter without
the step that closed it. Sweeps go on meanwhile: the second writer tries again.

The contact of a client is in the letters of some topics under the client's key. Their steps stay,
without what the errors say. The letters themselves stay in Kafka as they are.
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
from shardpost.delta import parquet_files, table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import OpenedTables, rows, table_errors
from shardpost.delta.rewritten_files import commit_files, files_with_contact, without_contact
from shardpost.delta.table import time_literal
from shardpost.delta.table_log import VersionExistsError
from shardpost.installation import Installation
from shardpost.instants import old_before
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.locks.locks import after_running
from shardpost.logs import step
from shardpost.topics.guards import inspect_stores
from shardpost.wording import counted

# A sweep appends every five minutes, and this takes seconds.
MOST_CONFLICTS = 4
# What counts of a time without any step: weeks may pass without a letter.
LONGEST_QUIET = timedelta(days=35)


def rows_with_contact(tables: Tables, topics: Collection[str], client: str) -> int:
    """Return how many rows have the client's contact, in letters of those topics."""
    version = table_log.newest_version(tables, DEAD_LETTERS)
    return 0 if version is None else sum(_find(tables, version, topics, client).values())


def erase_contact(installation: Installation, topics: Collection[str], client: str) -> int:
    """Commit a version without the contact, if there is any; return the rows that had it.

    Under the lock of the sweep, after any that is running: `lock_wait` at most. What the topics
    have by then is read first, so that no later sweep reads it into the table.
    """
    if table_log.newest_version(installation.tables, DEAD_LETTERS) is None:
        return 0
    with after_running(installation.files, SWEEP_DEAD_LETTERS.name):
        step("read letters")
        letters_table.catch_up(installation, letter_topics.partitions(installation.kafka))
        version = letters_table.open_table(installation.tables).version()
        counts = _find(installation.tables, version, topics, client)
        if counts:
            change = without_contact(DEAD_LETTERS, partial(_own, topics, client.encode()))
            files = dict.fromkeys(counts, change)
            commit_files(installation.tables, DEAD_LETTERS, version, files, str(uuid.uuid4()))
    return sum(counts.values())


def _find(tables: Tables, version: int, topics: Collection[str], client: str) -> dict[str, int]:
    place, own = ("origin_key", client.encode()), partial(_own, topics, client.encode())
    return files_with_contact(tables, DEAD_LETTERS, version, place, own)


def _own(topics: Collection[str], key: bytes, rows: pa.Table) -> pa.Array:
    return pc.and_(
        pc.equal(rows["origin_key"], key), pc.is_in(rows["origin_topic"], pa.array([*topics]))
    )


def may_be_forgotten(
    names: Collection[str], steps: Sequence[Step], generations: Generations
) -> set[str]:
    """Return the names of these letters that can go: without them the same letters are open.

    `steps` are all of these, and of those that depend on them or on which they depend.
    """
    is_open = _open(steps, generations)
    closed = set(names) - is_open
    without = [step for step in steps if step.id not in closed]
    # A letter that was renamed is open only if its later name is unknown.
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
    """The letters to remove, and the keys of tombstones written by hand to remove."""

    letters: pa.StringArray
    by_hand: pa.StringArray

    def mask(self, part: pa.Table) -> Any:
        """Tell of each row, of which there are `id` and `attempt`, whether it is removed."""
        is_by_hand = pc.is_null(part["attempt"])
        of_none, of_letter = (pc.is_in(part["id"], ids) for ids in (self.by_hand, self.letters))
        return pc.if_else(is_by_hand, of_none, of_letter)

    def without(self, part: pa.Table) -> pa.Table:
        """Return the rows that stay."""
        return part.filter(pc.invert(self.mask(part)))


def remove_old(installation: Installation, now: datetime, *, dry_run: bool = False) -> OldLetters:
    """Remove the letters from the table that were resolved SHARDPOST_LETTER_DAYS ago.

    ShardpostError if Kafka cannot be read, or a topic of letters was recreated or lost records.
    """
    make = partial(_remove, installation, now, dry_run)
    with table_errors():
        try:
            return table_log.retrying(DEAD_LETTERS, make, MOST_CONFLICTS)
        except VersionExistsError as conflict:
            return OldLetters(dry_run, postponed={"dead_letters": f"nothing removed: {conflict}"})


def _remove(installation: Installation, now: datetime, dry_run: bool) -> OldLetters:
    result = OldLetters(dry_run)
    version = table_log.newest_version(installation.tables, DEAD_LETTERS)
    if version is None:
        return result
    # By the table's steps, of which the last one of each day is enough, and not by the clock alone.
    sql = "SELECT max(at) AS at FROM dead_letters GROUP BY date_trunc('day', at)"
    times = (row["at"] for row in rows(installation.tables, sql, {DEAD_LETTERS: version}))
    age = timedelta(days=installation.settings.letter_days)
    horizon = old_before(times, now, age, LONGEST_QUIET)
    gone = None if horizon is None else _gone(installation, version, horizon, now)
    if horizon is None or gone is None:
        return result
    folder = f"{version + 1:08d}-{uuid.uuid4()}"
    added, removed = [], []
    for path in table_log.files_before(installation.tables, DEAD_LETTERS, version, "at", horizon):
        rows_there, count = _counted(installation.tables, path, gone)
        if not count:
            continue
        result.files += 1
        result.rows += count
        removed.append(path)
        if count < rows_there and not result.dry_run:
            step("write the letters that stay")
            target = f"{folder}/{result.files}.parquet"
            added.append(
                parquet_files.rewrite(installation.tables, DEAD_LETTERS, path, target, gone.without)
            )
    result.letters = len(gone.letters)
    if removed and not result.dry_run:
        step("remove letters")
        table_log.commit(installation.tables, DEAD_LETTERS, version, filter(None, added), removed)
        step("removed letters")
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
    # A store that was emptied would make every letter look dealt with.
    inspect_stores(installation, "dead-letters", "parking-lot")
    for name in _names_in_kafka(installation):
        old.discard(name)
    closed = old - listed_since(installation, open_index(installation, KeptIndex()), now).ids()
    generations = letter_topics.current_progress(installation).generations
    opened = OpenedTables(installation.tables, {DEAD_LETTERS: version})
    of_odd = letter_rows.odd_steps(opened, installation.settings.retry_rules, generations)
    odd = closed & {step.id for step in of_odd}
    letters = closed - odd | may_be_forgotten(odd, of_odd, generations)
    # Without its tombstone, one that was removed by hand would be open.
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
    """Yield the names of all letters of which Kafka has a record, even if only a tombstone."""
    kafka, rules = installation.kafka, installation.settings.retry_rules
    for topic, count in letter_topics.partitions(kafka).items():
        in_store = count if topic == kafka.topic("dead-letters") else None
        for number in range(count):
            for record in map(record_of, read_to_end(kafka, TopicPartition(topic, number))):
                yield name_of(record.key)
                # A tombstone of a dropped letter does not say that it was misplaced.
                yield name_of(b"%s~%d" % (record.key or b"", record.partition))
                if (found := step_of(record, rules, store_partitions=in_store)) is not None:
                    yield found.id


def _counted(tables: Tables, path: str, gone: _Gone) -> tuple[int, int]:
    """Return how many rows a file has, and how many of them are to be removed."""
    there = going = 0
    for part in parquet_files.parts(tables, DEAD_LETTERS, path, ("id", "attempt")):
        there += part.num_rows
        going += pc.sum(gone.mask(part)).as_py() or 0
    return there, going
