"""Lists of letters: filters, groups, and pages.

They work on the rows of letter_index.py, column by column: of a million letters only one page
becomes Python values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.letter_index import KeptIndex, LetterIndex, error_texts, open_index
from shardpost.dead_letters.letter_rows import STEP_COLUMNS, Place
from shardpost.dead_letters.model.letter_format import OPEN
from shardpost.dead_letters.model.letter_history import ListFilters, Step
from shardpost.dead_letters.model.retry_policy import delay
from shardpost.delta.query import python_values
from shardpost.installation import Installation

MICROSECOND = timedelta(microseconds=1)
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class LetterGroup:
    """The letters of one state, origin and error; `such_as` is the oldest, `said` its error."""

    state: str
    origin: str | None
    error: str | None
    letters: int
    oldest: datetime
    newest: datetime
    such_as: str
    said: str | None = None


@dataclass(frozen=True)
class ListedLetters:
    """The letters selected by filters, newest first, as a mask over the index's rows."""

    installation: Installation
    index: LetterIndex
    chosen: pa.ChunkedArray

    def before(self, ends: Mapping[int, int]) -> "ListedLetters":
        """Return those before these end offsets of their topic's partitions."""
        partitions, offsets = (self.index.rows[name] for name in ("partition", "offset"))
        most = range(1 + (pc.max(partitions).as_py() or 0))
        end = pa.array([ends.get(number, 0) for number in most], pa.int64())
        is_before = pc.less(offsets, pc.take(end, partitions))
        return replace(self, chosen=pc.and_(self.chosen, is_before))

    @cached_property
    def total(self) -> int:
        """The number of letters."""
        return pc.sum(self.chosen).as_py() or 0

    def due(self, now: datetime) -> int:
        """Return the number of waiting letters that are due."""
        names = ("origin_topic", "attempt", "jitter", "delayed_from")
        frame: Any = self.index.rows.select(names).filter(self.chosen).to_pandas()
        frame["age"] = (now - frame["delayed_from"]) // MICROSECOND
        waiting, count = frame.dropna(subset="age"), 0
        for kind, letters in waiting.groupby(["origin_topic", "attempt"], observed=True):
            origin, attempt = kind
            retries = self.installation.settings.retry_rules.of(origin)
            delays = np.ceil(delay(retries, attempt, letters["jitter"].to_numpy()) * 1000)
            count += int((delays * 1000 <= letters["age"]).sum())
        return count

    def groups(self) -> list[LetterGroup]:
        """Return the letters by state, origin and error, the largest groups first."""
        names = ("state", "origin_topic", "fingerprint")
        columns = [coded(self.index.rows[name]) for name in names]
        codes = [codes.filter(self.chosen) for codes, _ in columns]
        table = pa.Table.from_arrays([*codes, self._rows], [*"abc", "row"])
        found = table.group_by([*"abc"], use_threads=False).aggregate(
            [("row", "count"), ("row", "min"), ("row", "max")]
        )
        ends = {name: self._taken(found[f"row_{name}"]) for name in ("min", "max")}
        groups = []
        for number, row in enumerate(zip(*(found[c].to_pylist() for c in "abc"), strict=True)):
            state, origin, error = (
                None if code is None else names[code]
                for code, (_, names) in zip(row, columns, strict=True)
            )
            oldest, newest = ends["max"][number], ends["min"][number]
            count = found["row_count"][number].as_py()
            ages = (oldest.at, newest.at, oldest.id, oldest.error)
            groups.append(LetterGroup(str(state), origin, error, count, *ages))
        return sorted(
            groups, key=lambda one: (-one.letters, one.state, one.origin or "", one.error or "")
        )

    def page(self, begin: int, count: int) -> list[Step]:
        """Return the newest steps of so many letters, with their errors."""
        return self._taken(self._rows.slice(begin, count))

    def ids(self) -> set[str]:
        """Return the ids of all."""
        return {*self.index.rows["id"].filter(self.chosen).to_pylist()}

    @cached_property
    def _rows(self) -> pa.Array:
        return pc.indices_nonzero(self.chosen)

    def _taken(self, numbers: pa.Array) -> list[Step]:
        rows = self.index.rows.take(numbers)
        columns = [python_values(rows[name]) for name in STEP_COLUMNS]
        steps = (dict(zip(STEP_COLUMNS, one, strict=True)) for one in zip(*columns, strict=True))
        failed = ("failed_topic", "failed_generation", "failed_partition", "failed_offset")
        places: list[Place] = [*zip(*(rows[name].to_pylist() for name in failed), strict=True)]
        known = {place for place in places if place[0] is not None}
        texts = error_texts(self.installation.tables, self.index, known)
        pairs = zip(steps, places, strict=True)
        found = (step | {"error": texts.get(place)} for step, place in pairs)
        return letters_table.steps_in(found, self.installation.settings.retry_rules)


def listed(
    installation: Installation, index: LetterIndex, filters: ListFilters, now: datetime
) -> ListedLetters:
    """Return the letters that match the filters."""
    rows, since, closed_since = index.rows, filters.since, filters.closed_since(now)
    every = listed_since(installation, index, None if closed_since == since else closed_since)
    masks = [every.chosen]
    for name, value in (
        ("state", filters.state),
        ("origin_topic", filters.origin),
        ("fingerprint", filters.error),
    ):
        if value is not None:
            codes, names = coded(rows[name])
            masks.append(pc.equal(codes, names.index(value) if value in names else -1))
    if since is not None:
        masks.append(pc.greater_equal(rows["at"], pa.scalar(since, _INSTANT)))
    if filters.until is not None:
        masks.append(pc.less(rows["at"], pa.scalar(filters.until, _INSTANT)))
    if text := filters.text:
        has_case = text.lower() != text.upper()  # otherwise this is five times as fast
        of_ids = pc.match_substring(rows["id"], text, ignore_case=has_case)
        of_keys = pc.match_substring(rows["origin_key"], text.encode())
        masks.append(pc.or_(of_ids, pc.fill_null(of_keys, False)))
    if filters.ids is not None:
        masks.append(pc.is_in(rows["id"], pa.array(sorted(filters.ids), pa.string())))
    return ListedLetters(installation, index, _all_of(index, masks))


def listed_since(
    installation: Installation, index: LetterIndex, closed_since: datetime | None
) -> ListedLetters:
    """Return the waiting and parked letters, and those resolved since then."""
    masks = [] if index.mask is None else [index.mask]
    if closed_since is not None:
        recent = pc.greater_equal(index.rows["at"], pa.scalar(closed_since, _INSTANT))
        codes, names = coded(index.rows["state"])
        numbers = [names.index(state) for state in OPEN if state in names]
        masks.append(pc.or_(recent, pc.is_in(codes, pa.array(numbers, pa.int32()))))
    return ListedLetters(installation, index, _all_of(index, masks))


def current_letters(
    installation: Installation, *, closed_since: datetime | None = None
) -> dict[str, Step]:
    """Return the newest step of each letter by name; of resolved ones since then (None: all)."""
    found = listed_since(installation, open_index(installation, KeptIndex()), closed_since)
    return {step.id: step for step in found.page(0, found.total)}


def _all_of(index: LetterIndex, masks: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return the conjunction of the masks; all true without masks."""
    chosen = pc.is_valid(index.rows["at"])
    for mask in masks:
        chosen = pc.and_(chosen, mask)
    return pc.fill_null(chosen, False)


def coded(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[str]]:
    """Return a column of names as numbers, and the names by these."""
    parts = column.unify_dictionaries().chunks
    names = parts[0].dictionary.to_pylist() if parts else []
    return pa.chunked_array([part.indices for part in parts], pa.int32()), names


def names_of(index: LetterIndex) -> tuple[Sequence[str], Sequence[str]]:
    """Return the origins and the fingerprints of errors that letters have."""
    found = (coded(index.rows[name])[1] for name in ("origin_topic", "fingerprint"))
    origins, errors = (sorted(name for name in names if name) for names in found)
    return origins, errors
