"""What a partition of dead letters holds, in a few numbers for each of its records.

Values and headers stay in Kafka: the index knows where each letter is, whether it is due, and which
attempt of it was dealt with, as the tombstones say while Kafka keeps them. What that makes of each
key is found out when all is read: nearly every key has one record only.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from itertools import groupby

import numpy as np
import numpy.typing as npt

from shardpost.domain.backoff import Rules
from shardpost.domain.dealing import attempt_dealt_with, offset_dealt_with
from shardpost.domain.fingerprints import fingerprint
from shardpost.domain.letters import Letter, Malformed, parse
from shardpost.domain.records import Record
from shardpost.domain.triage import Park, Retry, Wait, decide
from shardpost.sweeping.life import NONE, Fate, Life

LONG_KEY = 32
_TOMBSTONE = NONE  # among the fates
_FATES = {Retry: Fate.RETRY, Wait: Fate.WAIT, Park: Fate.PARK}


@dataclass(frozen=True)
class Chosen:
    """The letters to be dealt with, in the order of the store.

    `release` is the offset up to which the store has to be read before a letter may go, so that
    letters of one original key go in the order of the origin; `place` is that order.
    """

    offsets: npt.NDArray[np.int64]
    fates: npt.NDArray[np.int8]
    release: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Live:
    """The live letters, in the order of the store; `dealt` has the attempts of those to drop."""

    rows: npt.NDArray[np.int64]
    fates: npt.NDArray[np.int8]
    dealt: dict[int, int]


@dataclass
class Index:
    """The records of a partition, added in the order of their offsets; then what they come to."""

    rules: Rules
    now: datetime
    held: frozenset[str] = frozenset()
    is_guarded: bool = False
    _keys: bytearray = field(default_factory=bytearray)
    _ends: "array[int]" = field(default_factory=lambda: array("q", [0]))
    _hashes: "array[int]" = field(default_factory=lambda: array("q"))
    _offsets: "array[int]" = field(default_factory=lambda: array("q"))
    _attempts: "array[int]" = field(default_factory=lambda: array("h"))
    _fates: "array[int]" = field(default_factory=lambda: array("b"))
    # Of those that do not wait: a letter's original key as a number, and its place in its order; a
    # tombstone's place is the offset up to which it speaks.
    _groups: "array[int]" = field(default_factory=lambda: array("q"))
    _places: "array[int]" = field(default_factory=lambda: array("q"))
    _marks: "array[int]" = field(default_factory=lambda: array("i"))
    _names: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> Fate:
        """Take one record in; return what is to be done with it if no other is of its key."""
        key = record.key or b""
        if len(key) > LONG_KEY:
            key = blake2b(key, digest_size=LONG_KEY).digest()
        self._keys += key
        self._ends.append(len(self._keys))
        self._hashes.append(hash(key))
        self._offsets.append(record.offset)
        if record.value is None:
            self._append(attempt_dealt_with(record), _TOMBSTONE, 0, offset_dealt_with(record))
            return Fate.WAIT
        letter = parse(record.key, record.headers, record.timestamp)
        fate = _FATES[type(decide(letter, self.now, self.rules))]
        if self.is_guarded:
            fate = self._guarded(letter, fate)
        if isinstance(letter, Malformed):
            self._append(NONE, fate)
        elif letter.origin_key is None or fate is Fate.WAIT:
            self._append(letter.attempt, fate)
        else:
            origin = (letter.origin_topic, letter.origin_partition, letter.origin_key)
            self._append(letter.attempt, fate, hash(origin), letter.origin_offset)
        return fate

    def dealt_with(self, record: Record) -> int:
        """Return the attempt that was dealt with, of the letter of a record that is dropped."""
        return self._live.dealt[record.offset]

    def counts(self) -> Counter[Fate]:
        """Return how many live letters have which fate."""
        fates, counts = np.unique(self._live.fates, return_counts=True)
        return Counter(dict(zip(map(Fate, fates.tolist()), counts.tolist(), strict=True)))

    def due_by_error(self) -> Counter[str]:
        """Return how many letters of each fingerprint are due; of a guarded index only."""
        names = list(self._names)
        is_due = np.isin(self._live.fates, (Fate.RETRY, Fate.HOLD))
        return Counter(names[mark] for mark in np.asarray(self._marks)[self._live.rows[is_due]])

    def chosen(self) -> Chosen:
        """Return the letters that are to be dealt with now."""
        fates = self._live.fates
        now = (fates != Fate.WAIT) & (fates != Fate.HOLD)
        rows, fates = self._live.rows[now], fates[now]
        offsets = np.asarray(self._offsets)[rows]
        group, place = self._origins(rows, fates)
        return Chosen(offsets, fates, _release(offsets, group, place), place)

    def _append(self, attempt: int, fate: int, group: int | None = None, place: int = 0) -> None:
        self._attempts.append(attempt)
        self._fates.append(fate)
        if fate != Fate.WAIT:
            self._groups.append(self._hashes[-1] if group is None else group)
            self._places.append(place)
        if self.is_guarded and len(self._marks) < len(self._fates):
            self._marks.append(0)

    def _guarded(self, letter: Letter | Malformed, fate: Fate) -> Fate:
        """Note the fingerprint of what is due, and hold it if that one is held."""
        if fate is not Fate.RETRY or isinstance(letter, Malformed):
            return fate
        mark = fingerprint(letter.error)
        self._marks.append(self._names.setdefault(mark, len(self._names)))
        return Fate.HOLD if mark in self.held else fate

    @cached_property
    def _live(self) -> "_Live":
        """What all records come to; keys are compared only where they have the same hash."""
        fates = np.asarray(self._fates)
        is_one_of_several = _shared(np.asarray(self._hashes))
        rows = np.flatnonzero(~is_one_of_several & (fates != _TOMBSTONE))
        lives = list(self._lives_of_several(np.flatnonzero(is_one_of_several)))
        rows = np.append(rows, np.array([life.row for life in lives], np.int64))
        fates = np.append(
            fates[rows[: len(rows) - len(lives)]], np.array([life.fate for life in lives], np.int8)
        )
        in_order = np.argsort(rows)
        dealt = {self._offsets[life.row]: life.dealt for life in lives if life.fate is Fate.DROP}
        return _Live(rows[in_order], fates[in_order], dealt)

    def _lives_of_several(self, rows: npt.NDArray[np.int64]) -> Iterator[Life]:
        """Yield the lives of letters of which there are several records, or seem to be."""
        by_hash = rows[np.argsort(np.asarray(self._hashes)[rows], kind="stable")]
        for _, same in groupby(by_hash.data, self._hashes.__getitem__):
            yield from self._lives(same)

    def _lives(self, rows: Iterable[int]) -> Iterator[Life]:
        """Yield the lives of letters among rows whose keys have the same hash."""
        found: dict[bytes, Life] = {}
        for row in rows:
            key = bytes(self._keys[self._ends[row] : self._ends[row + 1]])
            life = found.setdefault(key, Life())
            if (fate := self._fates[row]) == _TOMBSTONE:
                place = self._places[self._sparse[row]]
                life.tombstone(self._attempts[row], place)
            else:
                life.letter(row, self._offsets[row], self._attempts[row], Fate(fate))
        yield from (life for life in found.values() if life.row != NONE)

    @cached_property
    def _sparse(self) -> npt.NDArray[np.int64]:
        """Where in groups and places a row is."""
        return np.cumsum(np.asarray(self._fates) != Fate.WAIT) - 1

    def _origins(
        self, rows: npt.NDArray[np.int64], fates: npt.NDArray[np.int8]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return group and place of chosen rows; what goes to no topic of retries has no order."""
        group, place = np.asarray(self._hashes)[rows], np.zeros(len(rows), np.int64)
        is_ordered = (fates == Fate.RETRY) | (fates == Fate.PARK)
        where = self._sparse[rows[is_ordered]]
        group[is_ordered] = np.asarray(self._groups)[where]
        place[is_ordered] = np.asarray(self._places)[where]
        return group, place


def _shared(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell of each whether another is equal to it."""
    order = np.argsort(values)
    ascending = values[order]
    is_same = np.concatenate(([False], ascending[1:] == ascending[:-1], [False]))
    found = np.empty(len(values), np.bool_)
    found[order] = (is_same[1:] | is_same[:-1])[: len(values)]
    return found


def _release(
    offsets: npt.NDArray[np.int64], group: npt.NDArray[np.int64], place: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return for each letter the highest offset among those of its group up to its place."""
    release = offsets.copy()
    several = np.flatnonzero(_shared(group))
    order = several[np.lexsort((place[several], group[several]))]
    # Groups one above the other, so that the running maximum starts anew with each.
    rank = np.searchsorted(offsets, offsets[order])
    above = np.cumsum(np.diff(group[order], prepend=group[order[:1]]) != 0) * len(offsets)
    release[order] = offsets[np.maximum.accumulate(rank + above) - above]
    return release
