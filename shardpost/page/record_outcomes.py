"""Outcomes of records in our topics, each in a few words, with a link to details."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import HTTPException
from markupsafe import Markup

from shardpost.dead_letters.letters_table import letters_named
from shardpost.dead_letters.model.letter_format import ORIGIN_TOPIC, header_text
from shardpost.dead_letters.model.letters import letter_id
from shardpost.delta import snapshots
from shardpost.errors import ShardpostError, UsageError, harmless
from shardpost.holders.record_fates import Fate, FateKind, fates_of
from shardpost.installation import Installation
from shardpost.kafka.records import Coordinates, Record
from shardpost.page import access
from shardpost.page.rendering import LONGEST_CELL, Link, coded
from shardpost.page.request import LISTEN_SECONDS, PageRequest
from shardpost.page.value_layout import key_text
from shardpost.values.topic_names import INPUTS, TopicName

# Who sees a topic's records: who may see each DAG that works on them.
DAGS_OF: Mapping[TopicName, tuple[str, ...]] = {
    "positions": (access.POSITIONS,),
    "clients": (access.EMAILS,),
    "exchanges": (access.POSITIONS,),
    "share-holders": (access.POSITIONS,),
    "weekly-emails": (access.EMAILS,),
    "dead-letters": (access.LETTERS,),
    "retries": (access.LETTERS,),
    "parking-lot": (access.LETTERS,),
    "run-requests": (access.RUNS,),
    "run-commands": (access.RUNS,),
    "decisions": (access.KAFKA, access.RUNS, *access.CLIENTS),
}


@dataclass(frozen=True)
class OwnTopic:
    """One of our topics: its name in Kafka, and in the contract."""

    name: str
    kind: TopicName

    @property
    def dags(self) -> tuple[str, ...]:
        """The DAGs of all of which a user has to see its records."""
        return DAGS_OF[self.kind]

    def is_seen(self, visit: PageRequest) -> bool:
        """Tell whether the user may see its records."""
        return all(map(visit.may_see, self.dags))


def own_topics(installation: Installation) -> dict[str, OwnTopic]:
    """Return our topics by their names in Kafka, also those that retries of some origins go to."""
    found = {
        installation.kafka.topic(kind): OwnTopic(installation.kafka.topic(kind), kind)
        for kind in get_args(TopicName)
    }
    for name in sorted(installation.settings.retry_rules.retry_topics):
        found.setdefault(name, OwnTopic(name, "retries"))
    return found


def own_topic(visit: PageRequest, name: str) -> OwnTopic:
    """Return one of our topics; UsageError for any other, 403 for who may not see its records."""
    topics = own_topics(visit.installation)
    if name not in topics:
        raise UsageError(f"topic {name}: expected one of {', '.join(topics)}")
    if not topics[name].is_seen(visit):
        dags = " and the DAG ".join(topics[name].dags)
        raise HTTPException(403, f"for users who may see the DAG {dags}")
    return topics[name]


def topic_link(visit: PageRequest, name: str) -> Link | str:
    """Return the link to a topic's records; its name alone of a topic that is not ours."""
    is_own = name in own_topics(visit.installation)
    return Link(name, visit.url("records", topic=name)) if is_own else name


def key_link(visit: PageRequest, topic: str | None, key: bytes | None) -> Link | str | None:
    """Return a record's key; that of a position, or of a client, leads to the page about it."""
    places = {
        "positions": ("holders/position", "position"),
        "clients": ("holders/client", "client"),
    }
    own, text = own_topics(visit.installation).get(topic or ""), key_text(key)
    if not text or own is None or own.kind not in places or not own.is_seen(visit):
        return text
    path, name = places[own.kind]
    try:
        return Link(text, visit.url(path, **{name: (key or b"").decode()}))
    except UnicodeDecodeError:  # no id
        return text


def record_link(visit: PageRequest, topic: str, partition: int, offset: int) -> Link | str:
    """Return the link to a record; its place alone in a topic that is not ours."""
    place = f"{topic}[{partition}]@{offset}"
    if topic not in own_topics(visit.installation):
        return place
    return own_record_link(visit, topic, partition, offset, place)


def own_record_link(visit: PageRequest, topic: str, partition: int, offset: int, text: str) -> Link:
    """Return the link to a record of a topic of ours."""
    at = {"partition": str(partition), "offset": str(offset)}
    return Link(text, visit.url("records/record", topic=topic, **at))


_PLACE = re.compile(r"([a-zA-Z0-9._-]+)\[([0-9]{1,10})\]@([0-9]{1,19})")


def with_links(visit: PageRequest, text: str, most: int | None = LONGEST_CELL) -> Markup:
    """Return a text for a page: records of our topics lead to the records from there on.

    It is cut after `most` characters; None: it is whole.
    """
    made, at, own = Markup(), 0, own_topics(visit.installation)
    short = harmless(text)
    if most is not None and len(short) > most:
        short = f"{short[:most]}…"
    for place in _PLACE.finditer(short):
        if place[1] in own:
            url = visit.url("records", topic=place[1], partition=place[2], offset=place[3])
            made += coded(short[at : place.start()])
            made += Markup('<a href="{}">{}</a>').format(url, place[0])
            at = place.end()
    return made + coded(short[at:])


@dataclass(frozen=True)
class RecordOutcome:
    """What became of a record; `word` is the same in short, marked as `tag`: good, warn or bad."""

    text: str
    link: Link | None = None
    tag: str = ""
    word: str = ""

    @property
    def rest(self) -> str:
        """The text behind the word, where it begins with that."""
        return self.text.removeprefix(self.word).lstrip(": ")


Outcomes = dict[Coordinates, RecordOutcome]


def outcomes_of(
    visit: PageRequest, topic: OwnTopic, records: Sequence[Record]
) -> tuple[Outcomes, str | None]:
    """Return what became of records of a topic, and why that is not known if it is not."""
    if topic.kind not in (*INPUTS, "retries") or not records:
        return {}, None
    try:
        if topic.kind == "retries":
            return _of_retries(visit, topic, records), None
        return _of_inputs(visit, topic, records), None
    except ShardpostError as error:
        return {}, f"the outcomes of these records are unknown: {error}"


def _of_inputs(
    visit: PageRequest, topic: OwnTopic, records: Sequence[Record], origin: TopicName | None = None
) -> Outcomes:
    snapshot = snapshots.current(visit.installation.tables)
    kind, by_place = origin or topic.kind, {record.coordinates: record for record in records}
    fates = fates_of(visit.installation, snapshot, kind, [*by_place])
    is_position = kind == "positions"
    return {
        at: _of_fate(visit, fate, by_place[at], is_position=is_position)
        for at, fate in fates.items()
    }


def _of_fate(visit: PageRequest, fate: Fate, record: Record, *, is_position: bool) -> RecordOutcome:
    match fate.kind:
        case FateKind.TAKEN:
            closes = "; it closes the position" if is_position and record.value is None else ""
            return RecordOutcome(f"{fate}{closes}", None, "good", "in effect")
        case FateKind.REJECTED:
            letter = letter_id(record.coordinates, record.timestamp)
            return RecordOutcome(
                str(fate), letter_link(visit, letter, "its letter"), "bad", "rejected"
            )
        case FateKind.SUPERSEDED if fate.by:
            return RecordOutcome(str(fate), own_record_link(visit, *fate.by, str(fate.by)))
        case FateKind.UNREAD | FateKind.GONE:
            return RecordOutcome(str(fate), None, "warn", str(fate.kind))
    return RecordOutcome(str(fate))


def letter_link(visit: PageRequest, letter: str, text: str | None = None) -> Link:
    """Return a link to a letter's own page, with its id if with no other text."""
    return Link(text or letter, visit.url("letters/letter", id=letter))


def states_of_letters(visit: PageRequest, names: Collection[str]) -> dict[str, str]:
    """Return {letter: its state} as far as they are at hand, and the user may see letters."""
    if not names or not visit.may_see(access.LETTERS):
        return {}
    if visit.installation.kafka.why_nobody_listens(LISTEN_SECONDS):
        return {}
    try:
        found = letters_named(visit.installation, names)
    except ShardpostError:
        return {}
    return {name: str(step.state) for name, step in found.items()}


def _of_retries(visit: PageRequest, topic: OwnTopic, records: Sequence[Record]) -> Outcomes:
    """Return what became of retries of our inputs."""
    origins = {visit.installation.kafka.topic(kind): kind for kind in INPUTS}
    of_origin: dict[TopicName, list[Record]] = {}
    for record in records:
        headers: dict[str, Any] = dict(record.headers)
        if origin := origins.get(header_text(headers.get(ORIGIN_TOPIC))):
            of_origin.setdefault(origin, []).append(record)
    found: Outcomes = {}
    for origin, own in of_origin.items():
        found |= _of_inputs(visit, topic, own, origin)
    return found
