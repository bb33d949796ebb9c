"""What happened to records of the inputs: applied, superseded by a record, or rejected.

By the history of a snapshot, which keeps a record for longer than Kafka.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table, text_literal
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import lowest_of, newest_first
from shardpost.holders.model.view_tables import INPUTS
from shardpost.holders.position_history import in_lists
from shardpost.installation import Installation
from shardpost.kafka.records import Coordinates, Record
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.values.topic_names import TopicName


class FateKind(StrEnum):
    """What a record is by now; UNREAD: no compaction has read it yet. GONE: history lacks it."""

    TAKEN = "taken"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    UNREAD = "not read yet"
    GONE = "not in history"


@dataclass(frozen=True)
class Fate:
    """What became of a record: in which snapshot it was read, and by what it was superseded.

    `by` is the next later record of its key, None if a reconciliation closed it. `reason` is why it
    was rejected.
    """

    kind: FateKind
    snapshot: int | None = None
    by: Coordinates | None = None
    reason: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case FateKind.TAKEN:
                return f"in effect since snapshot {self.snapshot}: the latest record of its key"
            case FateKind.SUPERSEDED:
                by = self.by or "compact --reconcile, which closed its key"
                return f"read in snapshot {self.snapshot}, superseded by {by}"
            case FateKind.REJECTED:
                return f"rejected in snapshot {self.snapshot}: {self.reason}"
            case FateKind.UNREAD:
                by = "`shardpost compact`, or the DAG compact_positions"
                return f"not read yet: the next compaction reads it ({by})"
        return "not in history: it was superseded and pruned, or never read"

    def as_json(self) -> dict[str, Any]:
        """Return it without its empty fields."""
        found = {
            "state": str(self.kind),
            "snapshot": self.snapshot,
            "by": self.by and self.by._asdict(),
            "reason": self.reason,
        }
        return {name: value for name, value in found.items() if value is not None}


_PLACE = 'h.retry_topic, h.retry_partition, h.retry_offset, h."partition", h.offset'
_NAMES = ("kind", "retry_topic", "retry_partition", "retry_offset", '"partition"', "offset")
# Rows of records, without those by which a reconciliation closed a key, which have the same place.
_FOUND = f"""
SELECT {_PLACE}, h.key, h.kind, h.reason, h.snapshot{{value}} FROM {{table}} h
WHERE h.kind <> {text_literal(RecordKind.RECONCILED)} AND {{places}} ORDER BY h.snapshot
"""  # noqa: S608 - constants
# Of records that have a later one of their key: what that is.
_LATER = f"""
SELECT h.* FROM (
  SELECT {_PLACE}, h.kind, h.snapshot, {{later}} FROM {{table}} h
  WHERE h.kind <> {text_literal(RecordKind.REJECTED)} AND ({{of_keys}})
) h WHERE h.later_kind IS NOT NULL
  AND h.kind <> {text_literal(RecordKind.RECONCILED)} AND {{places}}
"""  # noqa: S608 - constants
_WINDOW = f"OVER (PARTITION BY h.key ORDER BY {newest_first('h')})"
_NEXT = ", ".join(f"lag(h.{name}) {_WINDOW} AS later_{name.strip(chr(34))}" for name in _NAMES)


@dataclass(frozen=True)
class _Topic:
    """A topic of originals, or of retries, and the history that has its records."""

    name: str
    origin: TopicName
    is_retry: bool

    @property
    def history(self) -> Table:
        return INPUTS[self.origin].history

    def places(self, records: Sequence[Coordinates]) -> str:
        """Return the condition that a row, h, is of one of the records, or lies between them."""
        partition, offset = (
            ("retry_partition", "retry_offset") if self.is_retry else ('"partition"', "offset")
        )
        own: dict[int, list[int]] = {}
        for record in records:
            own.setdefault(record.partition, []).append(record.offset)
        ranges = (
            f"(h.{partition} = {number} AND h.{offset} BETWEEN {min(at)} AND {max(at)})"
            for number, at in own.items()
        )
        is_own = "h.retry_offset IS NULL"
        if self.is_retry:
            is_own = f"h.retry_topic = {text_literal(self.name)}"
        return f"{is_own} AND ({' OR '.join(ranges)})"


def fates_of(
    installation: Installation,
    snapshot: Snapshot,
    origin: TopicName,
    records: Sequence[Coordinates],
) -> dict[Coordinates, Fate]:
    """Return the outcomes of records of an input, or of its retries; all from one topic.

    ShardpostError if the history may not be read at that snapshot, or Kafka is away.
    """
    if not records:
        return {}
    kafka = installation.kafka
    topic = _Topic(records[0].topic, origin, records[0].topic != kafka.topic(origin))
    known = snapshot.topic_ids.get(topic.name)
    if known is not None and topic_ids(kafka, [topic.name]).get(topic.name, known) != known:
        return dict.fromkeys(records, Fate(FateKind.UNREAD))
    found = _found(installation.tables, snapshot, topic, records)
    keys = {row["key"] for row in found.values() if row["key"] is not None}
    later = _later(installation, snapshot, topic, records, [*keys]) if keys else {}
    ends = snapshot.end_offsets.get(topic.name)
    fates = {}
    for at in records:
        if ends is not None and at.offset >= ends.get(at.partition, 0):
            fates[at] = Fate(FateKind.UNREAD)  # what history has there is of a former topic
        elif row := found.get(at):
            number = row["snapshot"]
            if row["kind"] == RecordKind.REJECTED:
                fates[at] = Fate(FateKind.REJECTED, number, reason=row["reason"])
            elif (at, number) in later:
                fates[at] = Fate(FateKind.SUPERSEDED, number, later[at, number])
            else:
                fates[at] = Fate(FateKind.TAKEN, number)
        else:
            fates[at] = Fate(FateKind.UNREAD if ends is None else FateKind.GONE)
    return fates


def kept_record(
    installation: Installation, snapshot: Snapshot, origin: TopicName, at: Coordinates
) -> Record | None:
    """Return a record as history keeps it, without its headers; None if it has none there."""
    topic = _Topic(at.topic, origin, at.topic != installation.kafka.topic(origin))
    more = ", h.value, h.raw_key, h.timestamp"
    row = _found(installation.tables, snapshot, topic, [at], more).get(at)
    if row is None:
        return None
    key = row["raw_key"]
    if key is None and row["key"] is not None:
        key = row["key"].encode()
    timestamp = int(row["timestamp"].timestamp() * 1000)
    return Record(key, row["value"], [], timestamp, *at)


def _found(
    tables: Tables,
    snapshot: Snapshot,
    topic: _Topic,
    records: Sequence[Coordinates],
    value: str = "",
) -> dict[Coordinates, dict[str, Any]]:
    places = topic.places(records)
    if not topic.is_retry:
        least = lowest_of(snapshot.generations.get(topic.origin, 0))
        places += f" AND (h.seq IS NULL OR h.seq >= {least})"
    sql = _FOUND.format(table=topic.history.name, places=places, value=value)
    found = rows(tables, sql, at_snapshot(snapshot, topic.history))
    return {_place(row, topic): row for row in found}


def _later(
    installation: Installation,
    snapshot: Snapshot,
    topic: _Topic,
    records: Sequence[Coordinates],
    keys: list[str],
) -> dict[tuple[Coordinates, int], Coordinates | None]:
    """Return the next later record of those that have one; None: a reconciliation.

    By the place and the snapshot of each: a former topic may have had a record in the same place.
    """
    sql = _LATER.format(
        table=topic.history.name, later=_NEXT, of_keys=in_lists(keys), places=topic.places(records)
    )
    original = replace(topic, name=installation.kafka.topic(topic.origin), is_retry=False)
    later = {}
    for row in rows(installation.tables, sql, at_snapshot(snapshot, topic.history)):
        own = {name.removeprefix("later_"): row[name] for name in row if name.startswith("later_")}
        is_reconciled = own["kind"] == RecordKind.RECONCILED
        by = None if is_reconciled else _place(own, original)
        later[_place(row, topic), row["snapshot"]] = by
    return later


def _place(row: dict[str, Any], topic: _Topic) -> Coordinates:
    if row["retry_offset"] is not None:
        return Coordinates(row["retry_topic"], row["retry_partition"], row["retry_offset"])
    return Coordinates(topic.name, row["partition"], row["offset"])
