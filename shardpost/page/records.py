"""Kafka records: those of our own topics, as they are, and what became of each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from shardpost.dead_letters.model.letter_format import keys_of
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.readable_values import ReadableValues
from shardpost.kafka import record_pages
from shardpost.kafka.reading import open_transaction_at
from shardpost.kafka.record_pages import Bounds, Places, RecordPage
from shardpost.kafka.records import Coordinates, partition_of
from shardpost.page import access
from shardpost.page.record import ShownRecord
from shardpost.page.record_outcomes import OwnTopic, outcomes_of, own_topic, own_topics
from shardpost.page.rendering import ROWS_OF_A_PAGE, Listing
from shardpost.page.request import CurrentRequest, Instant, Number, PageRequest, Text
from shardpost.page.value_layout import IN_LIST
from shardpost.wording import counted

router = APIRouter(prefix="/records", dependencies=[access.sees(access.POSITIONS)])

_PLACES = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*")


class Question(BaseModel):
    """Which records are asked for, as the address has it.

    `at` is where a page begins, as the page before it says; it goes before offset and time.
    """

    topic: Text = None
    partition: Number = None
    offset: Number = None
    since: Instant = None
    key: Text = None
    at: Text = None


@router.get("")
def records(visit: CurrentRequest, asked: Annotated[Question, Query()]) -> Response:
    """Show records of one of our topics from an offset, a time or a key on; else the newest."""
    if asked.offset is not None and asked.since is not None:
        raise UsageError("offset and time: expected one of them, found both")
    own = own_topic(visit, asked.topic or visit.installation.kafka.topic("positions"))
    asked = asked.model_copy(update={"topic": own.name})
    try:
        shown = _shown(visit, own, asked)
    except UsageError:
        raise
    except ShardpostError as error:
        shown = Shown(asked, None, {}, [str(error)])
    rows = [_row(visit, one) for one in shown.records]
    empty = "No records here: choose another offset or time, or all partitions."
    is_whole = shown.page is not None and shown.page.is_whole
    is_from_there = asked.offset is not None or asked.since or asked.at
    if asked.key is not None and is_whole and not is_from_there:
        read_there = f" in partition {asked.partition}" if asked.partition is not None else ""
        empty = f"No record of {own.name}{read_there} has exactly this key."
    return visit.answer(
        "records.html",
        shown,
        Listing(COLUMNS, rows, empty),
        asked=asked,
        kind=own.kind,
        topics=[one.name for one in own_topics(visit.installation).values() if one.is_seen(visit)],
        shown=shown.records,
        notes=shown.notes,
        bounds=shown.bounds,
        next=_places_text(shown.page.next) if shown.page and shown.page.has_more else None,
        earlier=_places_text(shown.earlier) if shown.earlier else None,
        is_readable=shown.page is not None,
    )


COLUMNS = ("partition", "offset", "time", "key", "value", "bytes", "outcome")


def _row(visit: PageRequest, one: ShownRecord) -> tuple[object, ...]:
    place = (one.record.partition, one.link(visit))
    return (*place, one.time, one.key, one.summary, one.layout.size, one.became)


@dataclass
class Shown:
    """A page of records, with notes on them; no page if they cannot be read."""

    asked: Question
    page: RecordPage | None
    bounds: Mapping[int, Bounds]
    notes: list[str]
    records: Sequence[ShownRecord] = ()
    earlier: Places | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; values are as on the page, bounded."""
        return {
            "topic": self.asked.topic,
            "partitions": {str(number): own._asdict() for number, own in self.bounds.items()},
            "records": [one.as_json() for one in self.records],
            "next": _places_text(self.page.next) if self.page and self.page.has_more else None,
            "notes": self.notes,
        }


def _shown(visit: PageRequest, topic: OwnTopic, asked: Question) -> Shown:
    installation = visit.installation
    every = record_pages.bounds_of(installation.kafka, topic.name, asked.partition)
    bounds = {n: own for n, own in every.items() if n in _partitions(topic, asked, len(every))}
    notes: list[str] = []
    places = _places(visit, topic, asked, bounds, notes)
    keys = None if asked.key is None else keys_of(asked.key)
    wanted = record_pages.Wanted(topic.name, places, keys, ROWS_OF_A_PAGE)
    page = record_pages.read_page(installation.kafka, wanted, bounds)
    if not page.is_whole:
        read = sum(page.next[number] - first for number, first in places.items())
        left = sum(max(0, bounds[number].stable - first) for number, first in places.items())
        notes.append(
            f"the time limit was reached after {read:,} of {left:,} offsets: the next page"
            " continues from there"
        )
    notes += _open_transactions(visit, topic, bounds)
    outcomes, problem = outcomes_of(visit, topic, page.records)
    if problem:
        notes.append(problem)
    has_earlier = asked.key is None and any(places[n] > own.low for n, own in bounds.items())
    earlier = record_pages.before(bounds, places, ROWS_OF_A_PAGE) if has_earlier else None
    values = ReadableValues(installation)
    shown = [
        ShownRecord(one, values.read(one), IN_LIST, outcomes.get(one.coordinates))
        for one in page.records
    ]
    return Shown(asked, page, bounds, notes, shown, earlier)


def _partitions(topic: OwnTopic, asked: Question, count: int) -> range | list[int]:
    """Return the partitions that are read: of a key the one where its records are, if one knows."""
    if asked.partition is not None:
        return [asked.partition]
    if asked.key is None or topic.kind == "dead-letters":  # placed by the keys of their origins
        return range(count)
    keys = keys_of(asked.key)
    if topic.kind == "weekly-emails":  # placed by the client, if the key has it
        if not all(b"/" in key for key in keys):
            return range(count)
        keys = {key.partition(b"/")[2] for key in keys}
    return [partition_of(key, count) for key in keys]


def _places(
    visit: PageRequest,
    topic: OwnTopic,
    asked: Question,
    bounds: Mapping[int, Bounds],
    notes: list[str],
) -> Places:
    """Return where reading begins in each partition; add what has to be said of that."""
    if asked.at is not None:
        return _parsed_places(asked.at, bounds)
    if asked.offset is not None:
        if not any(own.low <= asked.offset < own.high for own in bounds.values()):
            notes.append(f"offset {asked.offset} is out of range: Kafka's range is shown below")
        return {n: min(max(asked.offset, own.low), own.high) for n, own in bounds.items()}
    if asked.since is not None:
        return record_pages.from_time(visit.installation.kafka, topic.name, bounds, asked.since)
    if asked.key is not None:
        return {number: own.low for number, own in bounds.items()}
    ends = {number: own.stable for number, own in bounds.items()}
    return record_pages.before(bounds, ends, ROWS_OF_A_PAGE)


def _parsed_places(text: str, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    if not _PLACES.fullmatch(text):
        raise UsageError("at: expected partition:offset, as in the link to the next page")
    pairs = (pair.split(":") for pair in text.split(","))
    known = {int(number): int(offset) for number, offset in pairs if int(number) in bounds}
    # Of a partition that was added since, from its beginning.
    return {number: max(own.low, known.get(number, own.low)) for number, own in bounds.items()}


def _places_text(places: Places) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(places.items()))


def _open_transactions(
    visit: PageRequest, topic: OwnTopic, bounds: Mapping[int, Bounds]
) -> list[str]:
    """Say which transactions keep records from who reads committed ones."""
    open_ones = [number for number, own in bounds.items() if own.stable < own.high]
    if not open_ones:
        return []
    first, *more = open_ones
    begins = Coordinates(topic.name, first, bounds[first].stable)
    at = str(open_transaction_at(visit.installation.kafka, begins))
    others = f" and in {counted(len(more), 'other partition')}" if more else ""
    return [f"an open transaction at {at}{others}: committed records end before it"]
