"""Letters of one original key in the order of their origin, whatever their order in the store."""

import heapq
import pickle
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile

from shardpost.domain.records import Record
from shardpost.sweeping.index import Chosen
from shardpost.sweeping.life import Fate

# Letters that have to wait for one behind them are in memory up to so many bytes, then on disk.
IN_MEMORY_BYTES = 8 << 20


def in_origin_order(records: Iterable[Record], chosen: Chosen) -> Iterator[tuple[Record, Fate]]:
    """Yield chosen letters with their fates; `records` are theirs, in the order of the store."""
    waiting: list[tuple[int, int, int, int]] = []  # release, place, where it is, fate
    at, count = 0, len(chosen.offsets)
    with SpooledTemporaryFile(IN_MEMORY_BYTES) as spool:
        for record in records:
            while at < count and chosen.offsets[at] < record.offset:
                at += 1  # the cleaner took it: something newer is there
            fate, release = int(chosen.fates[at]), int(chosen.release[at])
            if release > record.offset:
                where = spool.seek(0, 2)
                pickle.dump(tuple(record), spool)
                heapq.heappush(waiting, (release, int(chosen.place[at]), where, fate))
                continue
            yield record, Fate(fate)
            while waiting and waiting[0][0] <= record.offset:
                yield _next(waiting, spool)
        while waiting:
            yield _next(waiting, spool)


def _next(
    waiting: list[tuple[int, int, int, int]], spool: "SpooledTemporaryFile[bytes]"
) -> tuple[Record, Fate]:
    _, _, where, fate = heapq.heappop(waiting)
    spool.seek(where)
    return Record(*pickle.load(spool)), Fate(fate)  # noqa: S301 - written here
