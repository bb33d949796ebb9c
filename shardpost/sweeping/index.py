"""What a partition of dead letters holds, folded to a few numbers for each key.

Values and headers stay in Kafka: the index knows where each live letter is, when it is due, and
which attempt of each key was dealt with, as the tombstones say while Kafka keeps them.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from shardpost.domain.backoff import Rules
from shardpost.domain.dealing import attempt_dealt_with, offset_dealt_with
from shardpost.domain.fingerprints import fingerprint
from shardpost.domain.letters import Letter, Malformed, parse
from shardpost.domain.records import Record
from shardpost.domain.triage import Park, Retry, Wait, decide

NONE = -1
LONG_KEY = 32


class Fate(IntEnum):
    """What a sweep does with a live letter."""

    WAIT = 0
    RETRY = 1
    PARK = 2
    DROP = 3  # the report of a failure that was dealt with
    RESTORE = 4  # waits, and lies under a record that must not replace it
    HOLD = 5


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


@dataclass
class Index:
    """The fold of a partition, read in the order of its offsets."""

    rules: Rules
    now: datetime
    held: frozenset[str] = frozenset()
    is_guarded: bool = False
    _slots: dict[bytes, int] = field(default_factory=dict)
    _live: "array[int]" = field(default_factory=lambda: array("q"))
    _attempt: "array[int]" = field(default_factory=lambda: array("i"))
    _dealt: "array[int]" = field(default_factory=lambda: array("i"))
    _fate: "array[int]" = field(default_factory=lambda: array("b"))
    _group: "array[int]" = field(default_factory=lambda: array("q"))
    _place: "array[int]" = field(default_factory=lambda: array("q"))
    _mark: "array[int]" = field(default_factory=lambda: array("i"))
    _marks: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> Fate:
        """Fold one record in; return what is to be done with it as things stand."""
        slot = self._slot(record.key or b"")
        if record.value is None:
            self._bury(slot, record)
            return Fate.WAIT
        letter = parse(record.key, record.headers, record.timestamp)
        if isinstance(letter, Letter) and self._is_stale(slot, letter.attempt):
            return self._pass_over(slot, record)
        self._live[slot] = record.offset
        self._attempt[slot] = letter.attempt if isinstance(letter, Letter) else NONE
        fate = self._fate_of(slot, letter)
        self._fate[slot] = fate
        if isinstance(letter, Letter) and letter.origin_key is not None:
            origin = (letter.origin_topic, letter.origin_partition, letter.origin_key)
            self._group[slot], self._place[slot] = hash(origin), letter.origin_offset
        else:
            self._group[slot], self._place[slot] = hash(record.key), 0
        return fate

    def dealt_with(self, record: Record) -> int:
        """Return the attempt of the record's key that was dealt with; -1 if none was."""
        return self._dealt[self._slot(record.key or b"")]

    def counts(self) -> Counter[Fate]:
        """Return how many live letters have which fate."""
        live = np.array(self._live, np.int64) != NONE
        fates, counts = np.unique(np.array(self._fate, np.int8)[live], return_counts=True)
        return Counter(dict(zip(map(Fate, fates.tolist()), counts.tolist(), strict=True)))

    def due_by_error(self) -> Counter[str]:
        """Return how many letters of each fingerprint are due; of a guarded index only."""
        names = list(self._marks)
        columns = zip(self._live, self._fate, self._mark, strict=True)
        is_due = (Fate.RETRY, Fate.HOLD)
        return Counter(names[m] for live, fate, m in columns if live != NONE and fate in is_due)

    def chosen(self) -> Chosen:
        """Return the letters that are to be dealt with now."""
        offsets, fates = np.array(self._live, np.int64), np.array(self._fate, np.int8)
        now = (offsets != NONE) & (fates != Fate.WAIT) & (fates != Fate.HOLD)
        offsets, fates = offsets[now], fates[now]
        group = np.array(self._group, np.int64)[now]
        place = np.array(self._place, np.int64)[now]
        order = np.argsort(offsets)
        release = _release(offsets, group, place)
        return Chosen(offsets[order], fates[order], release[order], place[order])

    def _slot(self, key: bytes) -> int:
        name = key if len(key) <= LONG_KEY else blake2b(key, digest_size=LONG_KEY).digest()
        slot = self._slots.setdefault(name, len(self._live))
        if slot == len(self._live):
            for column in (self._live, self._attempt, self._dealt):
                column.append(NONE)
            for column in (self._fate, self._group, self._place, self._mark):
                column.append(0)
        return slot

    def _bury(self, slot: int, tombstone: Record) -> None:
        """Take out what a tombstone is of; what came while it was on its way stays."""
        self._dealt[slot] = max(self._dealt[slot], attempt_dealt_with(tombstone))
        if self._live[slot] <= offset_dealt_with(tombstone):
            self._live[slot] = NONE
        elif NONE < self._attempt[slot] <= self._dealt[slot]:
            self._fate[slot] = Fate.DROP
        elif self._fate[slot] in (Fate.WAIT, Fate.HOLD):
            self._fate[slot] = Fate.RESTORE

    def _is_stale(self, slot: int, attempt: int) -> bool:
        is_known = self._live[slot] != NONE and self._fate[slot] != Fate.DROP
        return attempt <= self._dealt[slot] or (is_known and attempt < self._attempt[slot])

    def _pass_over(self, slot: int, record: Record) -> Fate:
        """Keep a failure that was dealt with, or is older than the live one, from counting."""
        if self._live[slot] == NONE or self._fate[slot] == Fate.DROP:
            self._live[slot], self._fate[slot] = record.offset, Fate.DROP
            self._group[slot], self._place[slot] = hash(record.key), 0
            return Fate.DROP
        if self._fate[slot] in (Fate.WAIT, Fate.HOLD):
            self._fate[slot] = Fate.RESTORE
        return Fate.WAIT

    def _fate_of(self, slot: int, letter: Letter | Malformed) -> Fate:
        match decide(letter, self.now, self.rules):
            case Retry():
                return self._guarded(slot, letter)
            case Wait():
                return Fate.WAIT
            case Park():
                return Fate.PARK

    def _guarded(self, slot: int, letter: Letter | Malformed) -> Fate:
        if not self.is_guarded or isinstance(letter, Malformed):
            return Fate.RETRY
        mark = fingerprint(letter.error)
        self._mark[slot] = self._marks.setdefault(mark, len(self._marks))
        return Fate.HOLD if mark in self.held else Fate.RETRY


def _release(
    offsets: npt.NDArray[np.int64], group: npt.NDArray[np.int64], place: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return for each letter the highest offset among those of its group up to its place."""
    if not len(offsets):
        return offsets
    order = np.lexsort((place, group))
    ascending = np.sort(offsets)
    rank = np.searchsorted(ascending, offsets[order])
    _, number = np.unique(group[order], return_inverse=True)
    # Groups one above the other, so that the running maximum starts anew with each.
    above = number * len(offsets)
    highest = np.maximum.accumulate(rank + above) - above
    release = np.empty_like(offsets)
    release[order] = ascending[highest]
    return release
