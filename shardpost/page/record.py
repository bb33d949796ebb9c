"""One record in full; from history if Kafka no longer has it."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

from shardpost.dead_letters.letter_details import text_or_base64
from shardpost.delta import snapshots
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.readable_values import Readable, ReadableValues
from shardpost.holders.record_fates import kept_record
from shardpost.instants import instant_of
from shardpost.kafka.reading import read_one
from shardpost.kafka.record_pages import bounds_of
from shardpost.kafka.records import Coordinates, Record
from shardpost.page.access import POSITIONS, sees
from shardpost.page.record_outcomes import (
    OwnTopic,
    RecordOutcome,
    outcomes_of,
    own_record_link,
    own_topic,
)
from shardpost.page.rendering import HEADERS, ROWS_OF_A_PAGE, Link
from shardpost.page.request import CurrentRequest, Number, PageRequest, Required
from shardpost.page.value_layout import ON_OWN_PAGE, Layout, laid_out_by_schema, summary
from shardpost.values.topic_names import INPUTS


@dataclass(frozen=True)
class ShownRecord:
    """A record, of whose value about `most` characters are shown."""

    record: Record
    value: Readable
    most: int
    outcome: RecordOutcome | None = None

    @property
    def time(self) -> datetime | None:
        """Its timestamp; None where an old client gave it none."""
        at = self.record.timestamp
        return None if at < 0 else instant_of(at)

    @property
    def key(self) -> str | None:
        """Its key as text, or in base64."""
        return text_or_base64(self.record.key)

    @property
    def headers(self) -> list[tuple[str, str | None]]:
        """Its headers, likewise."""
        return [(name, text_or_base64(value)) for name, value in self.record.headers]

    @property
    def summary(self) -> str:
        """Its value in one line."""
        return summary(self.value.shown)

    @cached_property
    def layout(self) -> Layout:
        """Its value, laid out."""
        return laid_out_by_schema(self.value, self.most)

    @property
    def became(self) -> str | None:
        """What became of it, in words; None where nothing is known."""
        return (self.outcome.text or None) if self.outcome else None

    def link(self, visit: PageRequest) -> Link:
        """Return a link to its own page."""
        return own_record_link(visit, *self.record.coordinates, str(self.record.offset))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; its value is as it is shown, bounded."""
        record, layout = self.record, self.layout
        return {
            **record.coordinates._asdict(),
            "timestamp": self.time and self.time.isoformat(timespec="milliseconds"),
            "append_time": record.is_append_time,
            "key": self.key,
            "headers": [list(header) for header in self.headers],
            "form": layout.kind,
            "value": None if record.value is None else layout.text,
            "cut": layout.is_cut,
            "size": layout.size,
            "became": self.became,
        }


router = APIRouter(prefix="/records", dependencies=[sees(POSITIONS)])


@router.get("/record")
def record(visit: CurrentRequest, topic: Required, partition: Number, offset: Number) -> Response:
    """Show one record; of an input also one that only history has yet."""
    own, place = _place(visit, topic, partition, offset)
    found, notes = _found(visit, own, place)
    shown = None
    if found is not None:
        outcomes, problem = outcomes_of(visit, own, [found])
        notes += [problem] if problem else []
        own_value = ReadableValues(visit.installation).read(found)
        shown = ShownRecord(found, own_value, ON_OWN_PAGE, outcomes.get(place))
    return visit.answer(
        "records_record.html",
        {"record": shown and shown.as_json(), "notes": notes},
        place=place,
        kind=own.kind,
        shown=shown,
        notes=notes,
        around=str(max(0, place.offset - ROWS_OF_A_PAGE // 2)),
    )


def _place(
    visit: PageRequest, topic: str, partition: int | None, offset: int | None
) -> tuple[OwnTopic, Coordinates]:
    own = own_topic(visit, topic)
    if partition is None or offset is None:
        raise UsageError("expected a partition and an offset")
    return own, Coordinates(own.name, partition, offset)


def _found(visit: PageRequest, topic: OwnTopic, at: Coordinates) -> tuple[Record | None, list[str]]:
    """Return a record out of Kafka, else as history keeps it; and what is to be said of that."""
    try:
        kafka = visit.installation.kafka
        bounds = bounds_of(kafka, at.topic, at.partition)[at.partition]
        is_there = bounds.low <= at.offset < bounds.stable
        if is_there and (found := read_one(kafka, at.topic_partition, at.offset)):
            return found, []
        if at.offset < bounds.low:
            why = f"Kafka has deleted {at}: the first offset kept is {bounds.low}"
        elif at.offset >= bounds.high:
            why = f"there is no {at} yet: the next offset is {bounds.high}"
        elif at.offset >= bounds.stable:
            why = f"{at} is not committed: a transaction is open from offset {bounds.stable} on"
        else:
            why = (
                f"Kafka has no record {at}: it was compacted away, since a later record has its "
                "key, or its transaction was aborted, or it is a transaction marker"
            )
        notes = [why]
    except ShardpostError as error:
        notes = [str(error)]
    kept = _kept(visit, topic, at, notes)
    if kept is not None:
        notes.append("this is the copy in Shardpost's history, without its headers")
    return kept, notes


def _kept(visit: PageRequest, topic: OwnTopic, at: Coordinates, notes: list[str]) -> Record | None:
    origins = INPUTS if topic.kind == "retries" else (topic.kind,)
    if topic.kind not in (*INPUTS, "retries"):
        return None
    try:
        snapshot = snapshots.current(visit.installation.tables)
        kept = (kept_record(visit.installation, snapshot, origin, at) for origin in origins)
        return next(filter(None, kept), None)
    except ShardpostError as error:
        notes.append(str(error))
        return None


@router.get("/value")
def value(visit: CurrentRequest, topic: Required, partition: Number, offset: Number) -> Response:
    """Give the value of a record, byte by byte, as a file."""
    own, place = _place(visit, topic, partition, offset)
    found, notes = _found(visit, own, place)
    if found is None or found.value is None:
        raise HTTPException(404, notes[0] if notes else f"{place} has no value: it is a tombstone")
    name = f"{place.topic}-{place.partition}-{place.offset}.bin"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(found.value, media_type="application/octet-stream", headers=headers)
