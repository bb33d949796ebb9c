"""One letter: its value, its headers, its life step by step, and what was decided about it."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost.dead_letters.letter_details import LetterDetails, describe, text_or_base64
from shardpost.dead_letters.model.letter_format import LetterState, attempt_of
from shardpost.errors import ShardpostError, shown
from shardpost.instants import instant_of, parse_instant
from shardpost.kafka.coordinates import Coordinates
from shardpost.page.access import LETTERS, sees
from shardpost.page.record_outcomes import key_link, outcomes_of, own_topics, record_link
from shardpost.page.rendering import HEADERS, Link, Listing
from shardpost.page.request import CurrentRequest, PageRequest
from shardpost.page.value_layout import ON_OWN_PAGE, laid_out, summary

router = APIRouter(prefix="/letters", dependencies=[sees(LETTERS)])
# Of a value so much can be edited in a form.
EDITED_BYTES = 100_000


@router.get("/letter")
def letter(visit: CurrentRequest, id: str) -> Response:  # noqa: A002 - as it stands in the address
    """Show one letter."""
    found = describe(visit.installation, id)
    record = found.record
    value = record.value if record else None
    headers = [(name, text_or_base64(raw)) for name, raw in (record.headers if record else [])]
    life = [
        (
            step.at,
            str(step.state),
            step.attempt,
            step.error,
            step.due,
            record_link(visit, step.topic, step.partition, step.offset),
        )
        for step in found.life
    ]
    forms = [one.as_json() for one in found.decisions]
    decided = [(parse_instant(one["when"]), one["kind"], one["who"], one["why"]) for one in forms]
    return visit.answer(
        "letter.html",
        found.as_json(),
        Listing(("at", "state", "attempt", "error", "due", "record"), life),
        found=found,
        value=laid_out(value, ON_OWN_PAGE),
        facts=_facts(visit, found),
        headers=Listing(("header", "value"), headers, "Its record is no longer in Kafka."),
        retries=_retries(visit, found),
        decisions=Listing(
            ("when", "decision", "who", "why"), decided, "Nobody has decided about it."
        ),
        is_parked=found.state == LetterState.PARKED,
        edited=_edited(value),
        has_crlf=value is not None and b"\r\n" in value,
    )


@router.get("/value")
def value(visit: CurrentRequest, id: str) -> Response:  # noqa: A002 - as it stands in the address
    """Return a letter's value as it is, to be saved."""
    record = describe(visit.installation, id).record
    if record is None or record.value is None:
        raise ShardpostError(f"letter {shown(id)}: its value is no longer in Kafka")
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="value.bin"'}
    return Response(record.value, media_type="application/octet-stream", headers=headers)


def _facts(visit: PageRequest, found: LetterDetails) -> dict[str, Any]:
    origin = next((step for step in found.life if step.origin_offset is not None), None)
    newest = next((step for step in reversed(found.life) if step.fingerprint), None)
    facts: dict[str, Any] = {"state": str(found.state or "unknown")}
    if newest is not None:
        address = visit.url("letters/list", error=newest.fingerprint)
        facts["error"] = Link(newest.fingerprint or "", address)
    if origin is not None and origin.origin_partition is not None:
        place = (origin.origin_topic or "", origin.origin_partition, origin.origin_offset or 0)
        facts["original record"] = record_link(visit, *place)
        facts["its key"] = key_link(visit, origin.origin_topic, origin.origin_key)
    if found.record is not None:
        facts["its value is at"] = record_link(visit, *found.record.coordinates)
    return facts


def _retries(visit: PageRequest, found: LetterDetails) -> Listing:
    same = found.record.value if found.record else None
    became: dict[Coordinates, str] = {}  # of those in topics that are not to be seen nothing
    for name, topic in own_topics(visit.installation).items():
        own = [retry for retry in found.retries if retry.coordinates.topic == name]
        outcomes, _ = outcomes_of(visit, topic, own if topic.is_seen(visit) else ())
        became |= {at: one.text for at, one in outcomes.items()}
    rows = [
        (
            instant_of(retry.timestamp),
            attempt_of(retry.headers),
            record_link(visit, *retry.coordinates),
            "the same value" if retry.value == same else summary(retry.value),
            became.get(retry.coordinates, "unknown"),
        )
        for retry in found.retries
    ]
    empty = "Kafka has no retry of it: it was not retried yet, or long ago."
    return Listing(("sent", "attempt", "record", "value", "what became of it"), rows, empty)


def _edited(value: bytes | None) -> str | None:
    """Return the value as a form has it to be edited; None if it is no text, or too long."""
    if value is None or len(value) > EDITED_BYTES:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
