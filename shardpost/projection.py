"""Projections: what the records of a partition come to, in a SQLite file of this machine.

Beside its tables a projection keeps of which topic its records were, and how far it has read. Both
change in one transaction, so it goes on where it stood, whatever ended a process. It is a cache:
one that is lost, damaged, of another topic, of other code or settings, or old, is read anew.

The files are in the home, in a folder of this boot of the machine: so no two machines write one,
and what a power failure left is not read. Several processes may use one at the same time; those of
other code or settings have files of their own. Where the home cannot be written, as by some
executors, a projection is a temporary file of its process.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Connection
from typing import NamedTuple

from shardpost.checkout import code_digest
from shardpost.errors import ShardpostError
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermarks_of
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Record, TopicPartition, batches, size_of
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.locks.process_identity import boot_of_machine
from shardpost.locks.shared_files import Files

FOLDER = "projections"
# Of pages, and once more of what is being sorted; the rest is on disk.
MEMORY_BYTES = 4 << 20
# Records that are folded in one transaction; so long another process waits to write.
ROWS = 5_000
WAIT_SECONDS = 300.0
# Beginning anew more often than that in one question is no reading any more.
MOST_BEGINNINGS = 3
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MARK = "mark (form TEXT, topic_id TEXT, made_at REAL, next_offset INTEGER, last_at INTEGER)"


@dataclass(frozen=True)
class Form:
    """What projections of a topic are: their tables, and the function that folds records into them.

    `fold` gets the records in the order of their offsets, each once, and changes nothing but the
    tables. `made_by` stands for what the rows follow from besides the code, such as settings. After
    `valid_for` a projection is read anew, so it forgets what Kafka has forgotten.
    """

    name: str
    tables: Sequence[str]
    fold: Callable[[Connection, Sequence[Record]], None]
    made_by: str = ""
    valid_for: timedelta = timedelta(days=1)

    @property
    def digest(self) -> str:
        """What stands for the tables and what they are made by."""
        made_by = repr((self.tables, self.made_by, code_digest()))
        return blake2b(made_by.encode(), digest_size=16).hexdigest()


class _Mark(NamedTuple):
    """How far a projection has read, of which topic; `last_at` is the time of its last record."""

    form: str
    topic_id: str
    made_at: float
    next_offset: int
    last_at: int


class _There(NamedTuple):
    """A partition as it is now: the id of its topic, its low and its high watermark."""

    topic_id: str
    low: int
    high: int


class Projections:
    """The projections of some partitions; Kafka is asked once how far these reach.

    They have committed records only. With `committed` they end before an open transaction; without
    it they wait for its end, as `read_to_end` does.
    """

    def __init__(
        self,
        kafka: Kafka,
        files: Files,
        form: Form,
        partitions: Sequence[TopicPartition],
        *,
        committed: bool = False,
    ) -> None:
        self._kafka, self._files, self._form, self._committed = kafka, files, form, committed
        self._there = self._now(partitions)
        self._beginnings = 0

    def _now(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, _There]:
        ids = topic_ids(self._kafka, {one.topic for one in partitions})
        marks = watermarks_of(self._kafka, partitions, committed=self._committed)
        return {at: _There(ids.get(at.topic, ""), *marks[at]) for at in partitions}

    def unread(self) -> int:
        """Return how many offsets are to be read before all can be used."""
        count = 0
        for partition, there in self._there.items():
            with self._connected(partition) as database:
                mark = _mark_of(database)
            is_valid = mark is not None and self._is_valid(mark, there)
            count += there.high - max(there.low, mark.next_offset if mark and is_valid else 0)
        return count

    @contextmanager
    def open(self, partition: TopicPartition) -> Iterator[Connection]:
        """Give the tables of a partition with all its records; who changes any makes TEMP tables.

        They stay as they are for as long as the transaction lasts that is given with them. So long
        no other process can write: who does more than to ask copies what it needs, and commits.
        """
        with disk_errors_explained(partition), self._connected(partition) as database:
            while True:
                mark = self._read(database, partition)
                database.execute("BEGIN")
                with database:
                    if mark == _mark_of(database):
                        yield database
                        return

    def forget(self, partition: TopicPartition) -> None:
        """Have the next one read it anew: it does not fit to what Kafka has."""
        with self._connected(partition) as database:
            database.execute("DELETE FROM mark")

    def _read(self, database: Connection, partition: TopicPartition) -> _Mark | None:
        """Read to the end; return the mark, None where that is to be done once more.

        So it is where another process has written, and where all is to be read anew.
        """
        mark = _mark_of(database)
        if mark is not None and mark.next_offset > self._there[partition].high:
            # Another process has read on since this one asked, or the topic was cut.
            self._there |= self._now([partition])
        if mark is None or not self._is_valid(mark, self._there[partition]):
            self._begin(database, partition, before=mark)
            return None
        last = mark.next_offset - 1
        start, committed = max(last, 0), self._committed
        messages = read_to_end(self._kafka, partition, start=start, committed=committed)
        records = map(record_of, messages)
        # Its last record once more: a topic that was cut and has grown again has another one there,
        # or none. Seldom the log cleaner or the retention has taken it.
        before = next(records, None) if last >= 0 else None
        is_same = before and (before.offset, before.timestamp) == (last, mark.last_at)
        if last >= 0 and not is_same:
            self._begin(database, partition, before=mark)
            return None
        for batch in batches(records, ROWS, size_of):
            database.execute("BEGIN IMMEDIATE")
            with database:
                if _mark_of(database) != mark:
                    return None
                self._form.fold(database, batch)
                offset, at = batch[-1].offset + 1, batch[-1].timestamp
                mark = mark._replace(next_offset=offset, last_at=at)
                database.execute("UPDATE mark SET next_offset = ?, last_at = ?", (offset, at))
        return mark

    def _is_valid(self, mark: _Mark, there: _There) -> bool:
        return (
            (mark.form, mark.topic_id) == (self._form.digest, there.topic_id)
            and 0 <= time.time() - mark.made_at < self._form.valid_for.total_seconds()
            and (mark.next_offset == 0 or there.low <= mark.next_offset <= there.high)
        )

    def _begin(
        self, database: Connection, partition: TopicPartition, *, before: _Mark | None
    ) -> None:
        """Make empty tables, unless another process just has."""
        self._beginnings += 1
        if self._beginnings > MOST_BEGINNINGS * len(self._there):
            why = "expected unchanged records, found different records at each read"
            raise ShardpostError(f"{partition}: {why}: run it again")
        for path in _all_files(self._files, self._form, partition):
            # Those of other code, settings or boots that nobody takes for valid any more.
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > self._form.valid_for.total_seconds():
                    _remove(path, waits=False)
        database.execute("BEGIN IMMEDIATE")
        with database:
            if _mark_of(database) == before:
                _empty(database)
                for table in self._form.tables:
                    database.execute(f"CREATE TABLE {table}")
                topic_id = self._there[partition].topic_id
                mark = _Mark(self._form.digest, topic_id, time.time(), 0, 0)
                database.execute("INSERT INTO mark VALUES (?, ?, ?, ?, ?)", mark)

    @contextmanager
    def _connected(self, partition: TopicPartition) -> Iterator[Connection]:
        path = _path(self._files, self._form, partition)
        with ExitStack() as held:
            try:
                database = held.enter_context(opened(path))
            except sqlite3.DatabaseError as error:
                _remove_damaged(path, error)
                database = held.enter_context(opened(path))
            try:
                yield database
            except sqlite3.DatabaseError as error:
                held.close()
                _remove_damaged(path, error)
                raise ShardpostError(
                    f"{path}: was damaged ({error}), and is removed: it is rebuilt when it is next"
                    " needed: run it again"
                ) from error


def remove(files: Files, form: Form, partition: TopicPartition) -> None:
    """Empty the projections of a partition: those of other code, settings and boots, too.

    What they had is no longer in the files. They are read anew by who asks.
    """
    for path in _all_files(files, form, partition):
        try:
            with disk_errors_explained(partition), opened(path) as database:
                database.execute("BEGIN IMMEDIATE")
                with database:
                    _empty(database)
        except sqlite3.DatabaseError as error:
            _remove_damaged(path, error)


def _all_files(files: Files, form: Form, partition: TopicPartition) -> list[Path]:
    path, names = _path(files, form, partition), f"*/{_name(form, partition)}-*.sqlite"
    return [*path.parent.parent.glob(names)] if path else []


def _path(files: Files, form: Form, partition: TopicPartition) -> Path | None:
    """Return where its file is; None if this process cannot write there."""
    try:
        folder = files.folder(FOLDER, boot_of_machine())
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    return folder / f"{_name(form, partition)}-{form.digest}.sqlite"


def _name(form: Form, partition: TopicPartition) -> str:
    return f"{form.name}-{partition.topic}-{partition.partition}"


@contextmanager
def opened(path: Path | None) -> Iterator[Connection]:
    """Give a connection; meanwhile nobody removes the file."""
    with ExitStack() as held:
        if path is not None:
            lock = held.enter_context(path.with_suffix(".lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_SH)
        database = held.enter_context(closing(_connect(str(path or ""))))
        # A process that ends leaves a whole file also without waiting for the disk.
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"CREATE TABLE IF NOT EXISTS {_MARK}")
        yield database


def _connect(path: str) -> Connection:
    database = sqlite3.connect(path, WAIT_SECONDS, isolation_level=None)
    for schema in ("main", "temp"):  # in KiB, where it is negative
        database.execute(f"PRAGMA {schema}.cache_size = -{MEMORY_BYTES >> 10}")
    database.execute("PRAGMA temp_store = FILE")
    # What a later record has replaced, such as an address, is no longer in the file.
    database.execute("PRAGMA secure_delete = ON")
    return database


def _empty(database: Connection) -> None:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'mark'"
    for (name,) in database.execute(tables).fetchall():
        database.execute(f"DROP TABLE {name}")
    database.execute("DELETE FROM mark")


def _mark_of(database: Connection) -> _Mark | None:
    row = database.execute("SELECT * FROM mark").fetchone()
    return None if row is None else _Mark(*row)


def _remove_damaged(path: Path | None, error: sqlite3.DatabaseError) -> None:
    """Remove a file when nobody has it open; raise the error if it does not say that it is bad."""
    if path is None or getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
        raise error
    _remove(path)


def _remove(path: Path, *, waits: bool = True) -> None:
    """Remove a file when nobody has it open; if it does not wait, only if nobody has."""
    with path.with_suffix(".lock").open("a") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in (path, path.with_name(f"{path.name}-journal")):
            name.unlink(missing_ok=True)


def open_temporary(*tables: str) -> Connection:
    """Return a new database with these tables in a temporary file, of which nothing is left.

    SQLite removes the file as soon as it is made, whatever ends the process. It lies where
    `SQLITE_TMPDIR` or `TMPDIR` says, else in `/var/tmp`. Nothing in it is ever rolled back.
    """
    database = _connect("")
    for setting in ("journal_mode = OFF", "synchronous = OFF", "secure_delete = OFF"):
        database.execute(f"PRAGMA {setting}")
    for table in tables:
        database.execute(f"CREATE TABLE {table}")
    database.execute("BEGIN")
    return database


@contextmanager
def disk_errors_explained(partition: TopicPartition) -> Iterator[None]:
    """Raise ShardpostError where a file cannot be written for lack of room, or is in use."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise ShardpostError(
                f"{partition}: another process has been writing its projection for more than"
                f" {WAIT_SECONDS:g} s: run it again"
            ) from None
        raise ShardpostError(
            f"{partition}: expected room for a temporary file, found: {error}; free some space in"
            " the home, and in the folder of temporary files (SQLITE_TMPDIR)"
        ) from None
