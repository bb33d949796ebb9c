"""Letters of one original key in the order of their origin, whatever their order in the store."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from sqlite3 import Connection

from shardpost.dead_letters.model.outcome import SelectedLetter
from shardpost.dead_letters.sweep_index import DelayedLetter
from shardpost.dead_letters.temporary_database import open_temporary
from shardpost.kafka.records import Record

SelectedRecord = tuple[Record, SelectedLetter]

_DELAYED = "delayed (offset INTEGER PRIMARY KEY, letter BLOB)"


def in_origin_order(
    letters: Iterable[SelectedRecord], delayed: Iterator[DelayedLetter]
) -> Iterator[SelectedRecord]:
    """Yield the letters, which come in the order of the store.

    `delayed` are those of them that wait for one behind them, in the order in which they go; until
    then they are on disk.
    """
    with closing(open_temporary(_DELAYED)) as disk:
        first = next(delayed, None)
        for record, selected in letters:
            while first is not None and first.release_offset < record.offset:
                yield from _stored(disk, first)
                first = next(delayed, None)
            if selected.release_offset > record.offset:
                row = (record.offset, pickle.dumps((record, selected)))
                disk.execute("INSERT INTO delayed VALUES (?, ?)", row)
            else:
                yield record, selected
        for one in chain([] if first is None else [first], delayed):
            yield from _stored(disk, one)


def _stored(disk: Connection, one: DelayedLetter) -> Iterator[SelectedRecord]:
    """Yield a delayed letter, if the log cleaner left it."""
    for (letter,) in disk.execute("SELECT letter FROM delayed WHERE offset = ?", (one.offset,)):
        yield pickle.loads(letter)  # noqa: S301 - written here
