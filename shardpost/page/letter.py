"""One letter: its value, its headers, its life step by step, and what was decided about it."""

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost.dead_letters.letter_details import LetterDetails, describe
from shardpost.dead_letters.model.letter_format import LetterState, attempt_of
from shardpost.errors import ShardpostError, shown
from shardpost.instants import instant_of
from shardpost.kafka.coordinates import Coordinates
from shardpost.page.access import LETTERS, sees
from shardpost.page.record_outcomes import key_link, outcomes_of, own_topics, record_link
from shardpost.page.rendering import HEADERS, Listing
from shardpost.page.request import CurrentRequest, PageRequest
from shardpost.page.value_layout import ON_OWN_PAGE, laid_out, summary

router = APIRouter(prefix="/letters", dependencies=[sees(LETTERS)])
# Of a value so much can be edited in a form.
EDITED_BYTES = 100_000


@router.get("/letter")
def letter(visit: CurrentRequest, id: str) -> Response:  # noqa: A002 - as it stands in the address
    """Show one letter."""
    found = describe(visit.installation, id)
    value = found.record.value if found.record else None
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
    return visit.answer(
        "letter.html",
        found.as_json(),
        Listing(("at", "state", "attempt", "error", "due", "record"), life),
        found=found,
        value=laid_out(value, ON_OWN_PAGE),
        key_link=key_link,
        record_link=record_link,
        retries=_retries(visit, found),
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
