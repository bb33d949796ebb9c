"""Letters of one original key in the order of their origin, whatever their order in the store."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from sqlite3 import Connection

from shardpost.dead_letters.sweep_index import Chosen, Late
from shardpost.dead_letters.temporary_database import scratch
from shardpost.kafka.records import Record

Found = tuple[Record, Chosen]

_WAITING = "waiting (offset INTEGER PRIMARY KEY, letter BLOB)"


def in_origin_order(letters: Iterable[Found], late: Iterator[Late]) -> Iterator[Found]:
    """Yield the letters, which come in the order of the store.

    `late` are those of them that wait for one behind them, in the order in which they go; until
    then they are on disk.
    """
    with closing(scratch(_WAITING)) as disk:
        first = next(late, None)
        for record, chosen in letters:
            while first is not None and first.release < record.offset:
                yield from _taken(disk, first)
                first = next(late, None)
            if chosen.release > record.offset:
                put = (record.offset, pickle.dumps((record, chosen)))
                disk.execute("INSERT INTO waiting VALUES (?, ?)", put)
            else:
                yield record, chosen
        for one in chain([] if first is None else [first], late):
            yield from _taken(disk, one)


def _taken(disk: Connection, late: Late) -> Iterator[Found]:
    """Yield a letter that has waited, if the cleaner left it."""
    for (letter,) in disk.execute("SELECT letter FROM waiting WHERE offset = ?", (late.offset,)):
        yield pickle.loads(letter)  # noqa: S301 - written here
