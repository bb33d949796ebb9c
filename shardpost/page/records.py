"""Kafka records: those of our own topics, as they are, and what became of each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

from shardpost.errors import ShardpostError, UsageError
from shardpost.instants import instant_of
from shardpost.page import access
from shardpost.page.parameters import Instant, Number, Required, Text
from shardpost.page.record_outcomes import (
    INPUTS,
    Outcome,
    OwnTopic,
    outcomes_of,
    own_topic,
    own_topics,
)
from shardpost.page.rendering import HEADERS, ROWS_OF_A_PAGE, Asked, Link, Listing, Visit
from shardpost.page.value_layout import IN_LIST, ON_OWN_PAGE, laid_out, summary
from shardpost.wording import counted

if TYPE_CHECKING:
    from shardpost.kafka.coordinates import Coordinates
    from shardpost.kafka.record_pages import Bounds, Places, RecordPage, State, Wanted
    from shardpost.kafka.records import Record

router = APIRouter(prefix="/records", dependencies=[access.sees(access.POSITIONS)])

# So many open transactions are looked up, of partitions that have one.
TRANSACTIONS_TOLD = 3
_PLACES = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*")


@dataclass(frozen=True)
class Question:
    """Which records are asked for, as the address has it.

    `at` is where a page begins, as the page before it says; it goes before offset and time.
    """

    topic: str
    partition: int | None
    offset: int | None
    since: datetime | None
    key: str | None
    committed: bool
    at: str | None

    def __post_init__(self) -> None:
        if self.offset is not None and self.since is not None:
            raise UsageError("offset and time: expected one of them, found both")


@router.get("")
def records(
    visit: Asked,
    topic: Text = None,
    partition: Number = None,
    offset: Number = None,
    since: Instant = None,
    key: Text = None,
    read: Literal["committed", "uncommitted"] = "committed",
    at: Text = None,
) -> Response:
    """Show records of one of our topics from an offset, a time or a key on; else the newest."""
    own = own_topic(visit, topic or visit.settings.topic("positions"))
    _require_sight(visit, own)
    asked = Question(own.name, partition, offset, since, key, read == "committed", at)
    try:
        shown = _shown(visit, own, asked)
    except UsageError:
        raise
    except ShardpostError as error:
        shown = Shown(asked, None, {}, [str(error)])
    entries = [_entry(visit, record, shown, IN_LIST) for record in shown.records]
    rows = [[entry[name] for name in ROW] for entry in entries]
    empty = "No records here: choose another offset or time, or all partitions."
    return visit.answer(
        "records.html",
        shown,
        Listing(COLUMNS, rows, empty),
        asked=asked,
        kind=own.kind,
        topics=[one.name for one in own_topics(visit.settings).values() if _is_seen(visit, one)],
        shown=entries,
        notes=shown.notes,
        bounds=shown.bounds,
        next=_places_text(shown.page.next) if shown.page and shown.page.has_more else None,
        earlier=_places_text(shown.earlier) if shown.earlier else None,
        is_readable=shown.page is not None,
    )


def _is_seen(visit: Visit, topic: OwnTopic) -> bool:
    return access.is_allowed(visit.user, topic.dag, "GET")


def _require_sight(visit: Visit, topic: OwnTopic) -> None:
    if not _is_seen(visit, topic):
        raise HTTPException(403, f"for users who may see the DAG {topic.dag}")


COLUMNS = ("partition", "offset", "time", "key", "value", "bytes", "what became of it")
ROW = ("partition", "link", "time", "key", "summary", "size", "became")


@dataclass
class Shown:
    """A page of records, and what is said of them; no page where they cannot be read."""

    asked: Question | None
    page: "RecordPage | None"
    bounds: "Mapping[int, Bounds]"
    notes: list[str] = field(default_factory=list)
    outcomes: "dict[Coordinates, Outcome]" = field(default_factory=dict)
    states: "dict[Coordinates, State]" = field(default_factory=dict)
    earlier: "Places | None" = None

    @property
    def records(self) -> "list[Record]":
        """The records of the page."""
        return [*self.page.records] if self.page else []

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; values are as on the page, bounded."""
        is_committed = self.asked is None or self.asked.committed
        return {
            "topic": self.asked and self.asked.topic,
            "read": "committed" if is_committed else "uncommitted",
            "partitions": {str(number): own._asdict() for number, own in self.bounds.items()},
            "records": [
                {**record_json(one, IN_LIST), "became": self.became(one)} for one in self.records
            ],
            "next": _places_text(self.page.next) if self.page and self.page.has_more else None,
            "notes": self.notes,
        }

    def became(self, record: "Record") -> str | None:
        """Return what became of a record, in words."""
        said = [_state_text(self.states.get(record.coordinates))]
        outcome = self.outcomes.get(record.coordinates)
        said.append(outcome.text if outcome else "")
        return "; ".join(filter(None, said)) or None


def _shown(visit: Visit, topic: OwnTopic, asked: Question) -> Shown:
    from shardpost.kafka import record_pages

    settings = visit.settings
    every = record_pages.bounds_of(settings, topic.name, asked.partition)
    bounds = {n: own for n, own in every.items() if n in _partitions(topic, asked, len(every))}
    notes: list[str] = []
    places = _places(visit, asked, bounds, notes)
    wanted = record_pages.Wanted(
        topic.name, places, asked.committed, _keys(asked.key), ROWS_OF_A_PAGE
    )
    page = record_pages.read_page(settings, wanted, bounds)
    if not page.is_whole:
        notes.append(_how_far(page, wanted, bounds))
    if asked.committed:
        notes += _open_transactions(visit, topic, bounds)
    outcomes, problem = outcomes_of(visit, topic, page.records)
    if problem:
        notes.append(problem)
    states = {} if asked.committed else record_pages.states_of(settings, page.records, bounds)
    has_earlier = asked.key is None and any(places[n] > own.low for n, own in bounds.items())
    earlier = record_pages.before(bounds, places, ROWS_OF_A_PAGE) if has_earlier else None
    return Shown(asked, page, bounds, notes, outcomes, states, earlier)


def _how_far(page: "RecordPage", wanted: "Wanted", bounds: "Mapping[int, Bounds]") -> str:
    read = sum(page.next[number] - first for number, first in wanted.places.items())
    ends = {n: own.end(committed=wanted.committed) for n, own in bounds.items()}
    left = sum(max(0, ends[number] - first) for number, first in wanted.places.items())
    return (
        f"the time for one page was over after {read:,} of {left:,} offsets: the next page goes on"
        " from there"
    )


def _partitions(topic: OwnTopic, asked: Question, count: int) -> range | list[int]:
    """Return the partitions that are read: of a key the one where its records are, if one knows."""
    from shardpost.kafka.partitioning import partition_of

    if asked.partition is not None:
        return [asked.partition]
    if asked.key is None or topic.kind == "dead-letters":  # placed by the keys of their origins
        return range(count)
    keys = _keys(asked.key) or set()
    if topic.kind == "weekly-emails":  # placed by the client
        keys = {key.partition(b"/")[2] for key in keys}
    return [partition_of(key, count) for key in keys]


def _keys(text: str | None) -> set[bytes] | None:
    """Return the keys that are written so: text, or `base64 …` for any bytes."""
    from shardpost.dead_letters.model.letter_format import keys_of

    return None if text is None else keys_of(text)


def _places(
    visit: Visit, asked: Question, bounds: "Mapping[int, Bounds]", notes: list[str]
) -> "Places":
    """Return where reading begins in each partition; add what has to be said of that."""
    from shardpost.kafka import record_pages

    if asked.at is not None:
        return _parsed_places(asked.at, bounds)
    if asked.offset is not None:
        notes += _out_of_range(asked.topic, asked.offset, bounds)
        return record_pages.from_offset(bounds, asked.offset)
    if asked.since is not None:
        return record_pages.from_time(visit.settings, asked.topic, bounds, asked.since)
    if asked.key is not None:
        return {number: own.low for number, own in bounds.items()}
    ends = {number: own.end(committed=asked.committed) for number, own in bounds.items()}
    return record_pages.before(bounds, ends, ROWS_OF_A_PAGE)


def _parsed_places(text: str, bounds: "Mapping[int, Bounds]") -> dict[int, int]:
    if not _PLACES.fullmatch(text):
        raise UsageError("at: expected partition:offset, as the link to the next page has them")
    pairs = (pair.split(":") for pair in text.split(","))
    known = {int(number): int(offset) for number, offset in pairs if int(number) in bounds}
    # Of a partition that was added since, from its beginning.
    return {number: max(own.low, known.get(number, own.low)) for number, own in bounds.items()}


def _places_text(places: "Places") -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(places.items()))


def _out_of_range(topic: str, offset: int, bounds: "Mapping[int, Bounds]") -> list[str]:
    """Return why an offset is not there, if no partition that is read has it."""
    if any(own.low <= offset < own.high for own in bounds.values()):
        return []
    said = (
        f"{topic}[{number}] has none"
        if own.low == own.high
        else f"{topic}[{number}] has {own.low} to {own.high - 1}"
        for number, own in bounds.items()
    )
    shown = [*said]
    more = f" and {counted(len(shown) - 5, 'other partition')}" if len(shown) > 5 else ""
    return [f"offset {offset} is out of range: {', '.join(shown[:5])}{more}"]


def _open_transactions(visit: Visit, topic: OwnTopic, bounds: "Mapping[int, Bounds]") -> list[str]:
    """Say which transactions keep records from who reads committed ones."""
    from shardpost.kafka.coordinates import Coordinates
    from shardpost.kafka.reading import open_transaction_at

    said = []
    open_ones = [number for number, own in bounds.items() if own.stable < own.high]
    for number in open_ones[:TRANSACTIONS_TOLD]:
        begins = Coordinates(topic.name, number, bounds[number].stable)
        found = open_transaction_at(visit.settings, begins)
        said.append(f"an open transaction at {found}: committed records end before it")
    if more := open_ones[TRANSACTIONS_TOLD:]:
        said.append(f"open transactions in {counted(len(more), 'other partition')}")
    return said


def _state_text(state: "State | None") -> str:
    if state is None or state.is_committed:
        return ""
    return "not committed yet" if state.is_open else "aborted"


def _entry(visit: Visit, record: "Record", shown: Shown, most: int) -> dict[str, Any]:
    """Return a record as templates show it."""
    place = {"topic": record.topic, "partition": str(record.partition)}
    url = visit.url("records/record", **place, offset=str(record.offset))
    return {
        "partition": record.partition,
        "link": Link(str(record.offset), url),
        "time": None if record.timestamp < 0 else instant_of(record.timestamp),
        "key": _text(record.key),
        "headers": [(name, _text(value)) for name, value in record.headers],
        "summary": summary(record.value),
        "size": None if record.value is None else len(record.value),
        "became": shown.became(record),
        "layout": laid_out(record.value, most),
        "outcome": shown.outcomes.get(record.coordinates),
        "state": _state_text(shown.states.get(record.coordinates)),
    }


def _text(raw: str | bytes | None) -> str | None:
    from shardpost.dead_letters.letter_details import text_or_base64

    return text_or_base64(raw)


def record_json(record: "Record", most: int) -> dict[str, Any]:
    """Return a record as JSON, with at most so much of its value."""
    layout = laid_out(record.value, most)
    at = None if record.timestamp < 0 else instant_of(record.timestamp)
    return {
        **record.coordinates._asdict(),
        "timestamp": at and at.isoformat(timespec="milliseconds"),
        "append_time": record.is_append_time,
        "key": _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "form": layout.kind,
        "value": None if record.value is None else layout.text,
        "cut": layout.is_cut,
        "size": layout.size,
    }


@router.get("/record")
def record(visit: Asked, topic: Required, partition: Number, offset: Number) -> Response:
    """Show one record, committed or not; of an input also one that only history has yet."""
    own, place = _place(visit, topic, partition, offset)
    found, notes = _found(visit, own, place)
    shown = Shown(None, None, {}, notes)
    if found.record is not None:
        shown.outcomes, problem = outcomes_of(visit, own, [found.record])
        shown.states = {place: found.state} if found.state else {}
        notes += [problem] if problem else []
    one = found.record
    document = one and {**record_json(one, ON_OWN_PAGE), "became": shown.became(one)}
    return visit.answer(
        "records_record.html",
        {"record": document, "notes": notes},
        place=place,
        kind=own.kind,
        entry=one and _entry(visit, one, shown, ON_OWN_PAGE),
        notes=notes,
        around=str(max(0, place.offset - ROWS_OF_A_PAGE // 2)),
    )


def _place(
    visit: Visit, topic: str, partition: int | None, offset: int | None
) -> "tuple[OwnTopic, Coordinates]":
    from shardpost.kafka.coordinates import Coordinates

    own = own_topic(visit, topic)
    _require_sight(visit, own)
    if partition is None or offset is None:
        raise UsageError("expected a partition and an offset")
    return own, Coordinates(own.name, partition, offset)


@dataclass(frozen=True)
class FoundRecord:
    """A record, and its state in Kafka; None where Kafka has none, or cannot be read."""

    record: "Record | None"
    state: "State | None" = None


def _found(visit: Visit, topic: OwnTopic, at: "Coordinates") -> tuple[FoundRecord, list[str]]:
    """Return a record out of Kafka, else as history keeps it; and what is to be said of that."""
    from shardpost.kafka import record_pages

    try:
        bounds = record_pages.bounds_of(visit.settings, at.topic, at.partition)[at.partition]
        found = record_pages.read_one(visit.settings, at, bounds)
        if found.record is not None:
            return FoundRecord(found.record, found.state), []
        notes = [_why_none(at, bounds)]
    except ShardpostError as error:
        notes = [str(error)]
    kept = _kept(visit, topic, at, notes)
    if kept is not None:
        notes.append("this is what Shardpost's history keeps of it, without its headers")
    return FoundRecord(kept), notes


def _why_none(at: "Coordinates", bounds: "Bounds") -> str:
    if at.offset < bounds.low:
        return f"Kafka has deleted {at}: the first offset that it keeps there is {bounds.low}"
    if at.offset >= bounds.high:
        return f"there is no {at} yet: the next offset that is written there is {bounds.high}"
    return (
        f"Kafka has no record {at}: it was compacted away, since a later one has its key, or it is"
        " the mark by which a transaction ended"
    )


def _kept(visit: Visit, topic: OwnTopic, at: "Coordinates", notes: list[str]) -> "Record | None":
    """Return a record of an input, or a retry of one, as history keeps it."""
    origins = INPUTS if topic.kind == "retries" else (topic.kind,)
    if topic.kind not in (*INPUTS, "retries"):
        return None
    from shardpost.delta import snapshots
    from shardpost.holders.record_fates import kept_record

    try:
        snapshot = snapshots.current(visit.settings)
        kept = (kept_record(visit.settings, snapshot, origin, at) for origin in origins)
        return next(filter(None, kept), None)
    except ShardpostError as error:
        notes.append(str(error))
        return None


@router.get("/value")
def value(visit: Asked, topic: Required, partition: Number, offset: Number) -> Response:
    """Give the value of a record, byte by byte, as a file."""
    own, place = _place(visit, topic, partition, offset)
    found, notes = _found(visit, own, place)
    if found.record is None or found.record.value is None:
        raise HTTPException(404, notes[0] if notes else f"{place} has no value: it is a tombstone")
    name = f"{place.topic}-{place.partition}-{place.offset}.bin"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(found.record.value, media_type="application/octet-stream", headers=headers)
