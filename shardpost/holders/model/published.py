"""What a run leaves in Kafka: how far it published, and which letters it sent; and its counts.

Tables that were restored from a copy give the numbers after it again: to other snapshots, which
other runs make. So what is noted in Kafka has the run beside the number.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from shardpost.delta.table import text_literal
from shardpost.kafka import records


def _whole(number: object) -> int:
    if type(number) is not int or number < 0:
        raise TypeError(f"expected a whole number from 0, found {number!r}")
    return number


class SnapshotRun(NamedTuple):
    """The number of a snapshot, 0 of none, and the run that made it."""

    number: int
    run: str = ""

    @classmethod
    def of(cls, number: object, run: object) -> "SnapshotRun":
        """Return it from JSON; TypeError if the form differs."""
        if not isinstance(run, str):
            raise TypeError(f"expected the id of a run, found {run!r}")
        return cls(_whole(number), run)

    def is_in(self, runs: Mapping[int, str]) -> bool:
        """Tell whether that snapshot is one of {number: run}, those of the tables.

        If it is not, the tables were restored, and what was done since is not in them.
        """
        if self.number > max(runs, default=0):
            return False
        return runs.get(self.number, self.run) == self.run


NONE = SnapshotRun(0)


@dataclass(frozen=True)
class Published:
    """What a partition was published at.

    `largest` is how large a record could be, if a list was too large for one since all were
    published; else None. All that counts lies at `low` or above, and below `end`, where nobody but
    Shardpost had written then. `partly` is the snapshot
    of which some transactions were committed, but not the last one.
    """

    at: SnapshotRun = NONE
    largest: int | None = None
    low: int = 0
    end: int = 0
    partly: SnapshotRun | None = None

    @classmethod
    def of(cls, metadata: str | None) -> "Published":
        """Return what was committed; nothing before the first publication.

        Nor of what another program committed, with metadata of its own: then all is published.
        """
        if not metadata:
            return cls()
        try:
            form = json.loads(metadata)
            at, largest = SnapshotRun.of(form["snapshot"], form["run"]), form.get("largest")
            return cls(
                at,
                None if largest is None else _whole(largest),
                _whole(form["low"]),
                _whole(form["end"]),
                SnapshotRun.of(*form["partly"]) if "partly" in form else None,
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls()

    def as_metadata(self) -> str:
        """Return the form in which it is committed."""
        form: dict[str, Any] = {"snapshot": self.at.number, "run": self.at.run}
        form |= {"largest": self.largest, "low": self.low, "end": self.end, "partly": self.partly}
        return json.dumps({name: value for name, value in form.items() if value is not None})

    def what_is_wrong(self, runs: Mapping[int, str], now: records.PartitionMark) -> str | None:
        """Return why its records are not those of {number: run}, the snapshots of the tables."""
        if not self.at.number:
            return None
        if not self.at.is_in(runs):
            return f"snapshot {self.at.number} was published, but is not in these tables"
        if self.partly is not None and not self.partly.is_in(runs):
            return (
                f"a part of snapshot {self.partly.number} was published, but is not in these tables"
            )
        return now.lost_since(records.PartitionMark(self.low, self.end))

    def since(self, largest: int) -> int:
        """Return the number of the snapshot whose later changes are to be published.

        0, for all holders, where a list was too large and larger ones are possible now.
        """
        return 0 if self.largest is not None and self.largest < largest else self.at.number

    def then(self, at: SnapshotRun, end: int, largest: int | None) -> "Published":
        """Return what it is at after a publication; `largest` is None if no list was too large."""
        known = [size for size in (self.largest, largest) if size is not None]
        return Published(at, min(known, default=None), self.low, end)


# What a record with headers is taken for, besides key and value: Kafka bounds them by a megabyte,
# and a letter keeps 32 kB.
HEADERS_BYTES = 16 << 10


class Place(NamedTuple):
    """Where a rejected record stands among all: by the snapshot that read it, and coordinates."""

    snapshot: int
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, snapshot: object, topic: object, partition: object, offset: object) -> "Place":
        """Return it from JSON; TypeError if the form differs."""
        if not isinstance(topic, str):
            raise TypeError(f"expected the name of a topic, found {topic!r}")
        return cls(_whole(snapshot), topic, _whole(partition), _whole(offset))

    def sql_of_those(self, beyond: Literal["<", ">"]) -> str:
        """Return the condition of what stands before (<) or after (>) it."""
        topic = text_literal(self.topic)
        return (
            f"(snapshot {beyond} {self.snapshot} OR (snapshot = {self.snapshot}"
            f" AND (topic {beyond} {topic} OR (topic = {topic}"
            f' AND ("partition" {beyond} {self.partition} OR ("partition" = {self.partition}'
            f' AND "offset" {beyond} {self.offset}))))))'
        )


class PlaceRange(NamedTuple):
    """The records from one place to another, both among them, and whether none come after them."""

    first: Place
    last: Place
    is_last: bool

    def sql(self) -> str:
        """Return its condition; the numbers stand first, by which files are passed over."""
        return (
            f"snapshot BETWEEN {self.first.snapshot} AND {self.last.snapshot}"
            f" AND NOT {self.first.sql_of_those('<')} AND NOT {self.last.sql_of_those('>')}"
        )


def place_ranges(placed: Iterable[tuple[Place, int, int]]) -> Iterator[PlaceRange]:
    """Yield ranges of records given in order as (place, bytes, number of headers).

    A range has no more records and bytes than a batch (kafka/records.py), or a single record.
    """
    first = last = None
    count = size = 0
    for place, bytes_, headers in placed:
        bytes_ += HEADERS_BYTES if headers else 0
        is_full = count == records.MAX_BATCH_RECORDS or size + bytes_ > records.MAX_BATCH_BYTES
        if first and last and is_full:
            yield PlaceRange(first, last, is_last=False)
            first, count, size = None, 0, 0
        first, last = first or place, place
        count, size = count + 1, size + bytes_
    if first and last:
        yield PlaceRange(first, last, is_last=True)


@dataclass(frozen=True)
class RunCounts:
    """Records that a run rejected, retries that it read, and those that are now the latest.

    Those `without_effect` are the other decodable ones. `reconciled` keys were closed, since their
    topics do not hold them any more. Of `uncertain` keys good records may be lost: they were left
    as they are, and `uncertain_keys` names the first of each topic. `skipped` are those that do not
    meet `where` of SHARDPOST_INPUTS.
    """

    rejected: int = 0
    retries: int = 0
    applied: int = 0
    without_effect: int = 0
    reconciled: int = 0
    uncertain: int = 0
    uncertain_keys: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    skipped: int = 0

    def summary(self) -> str:
        """Return the counts above 0 as one line."""
        words = {
            "rejected": self.rejected,
            "skipped": self.skipped,
            "retries read": self.retries,
            "retries applied": self.applied,
            "retries without effect": self.without_effect,
            "keys closed": self.reconciled,
            "keys uncertain": self.uncertain,
        }
        return (
            ", ".join(f"{count} {what}" for what, count in words.items() if count)
            or "none rejected"
        )
