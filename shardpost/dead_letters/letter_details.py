"""What `letters show` prints: one letter's headers, value, life, decisions and retries."""

import base64
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shardpost.dead_letters import letter_topics
from shardpost.dead_letters.letters_table import life
from shardpost.dead_letters.model import letter_format
from shardpost.dead_letters.model.letter_history import Generations, Step, newest_steps
from shardpost.decisions import Decision, decode
from shardpost.errors import NotFoundError, shown
from shardpost.installation import Installation
from shardpost.instants import instant_of
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import starts_since
from shardpost.kafka.reading import read_one, read_to_end, record_of
from shardpost.kafka.records import Record, TopicPartition, utf8_text
from shardpost.kafka.topic_metadata import partition_with

# The largest time difference between records of one transaction.
CLOCKS_DIFFER = timedelta(minutes=10)
# The state of a waiting or parked letter whose topic was deleted and recreated.
LOST = "lost"


@dataclass(frozen=True)
class LetterDetails:
    """One letter; `record` is the newest record with its value, None if Kafka no longer has it."""

    letter_id: str
    state: str | None
    record: Record | None
    life: Sequence[Step]
    decisions: Sequence[Decision]
    retries: Sequence[Record]

    def as_json(self) -> dict[str, Any]:
        """Return the form of `letters show --json`; bytes that are not UTF-8 are `base64 …`."""
        record = self.record
        headers = record.headers if record else []
        return {
            "letter_id": self.letter_id,
            "state": self.state,
            "where": str(record.coordinates) if record else "its value is no longer in Kafka",
            "headers": [(name, text_or_base64(raw)) for name, raw in headers],
            **_value_as_json(record),
            "life": [
                {**step.as_json(), "at": step.at.isoformat(timespec="milliseconds")}
                for step in self.life
            ],
            "decisions": [decision.as_json() for decision in self.decisions],
            "retries": [
                {
                    "where": str(retry.coordinates),
                    "at": instant_of(retry.timestamp).isoformat(timespec="milliseconds"),
                    "attempt": letter_format.attempt_of(retry.headers),
                    **_value_as_json(retry),
                }
                for retry in self.retries
            ],
        }


def describe(installation: Installation, letter_id: str) -> LetterDetails:
    """Return the details of a letter; NotFoundError if it is unknown."""
    steps = life(installation, letter_id)
    generations = letter_topics.current_progress(installation).generations
    record = newest_record(installation.kafka, steps, generations)
    newest = newest_steps(steps, generations).get(letter_id)
    is_known = not all(step.is_by_hand for step in steps)
    if not is_known and record is None:
        raise NotFoundError(
            f"no letter {shown(letter_id)}: `shardpost letters list` lists the known letters"
        )
    return LetterDetails(
        letter_id,
        str(newest.state) if newest else (LOST if is_known else None),
        record,
        steps,
        [*_decisions(installation.kafka, letter_id, steps)],
        [*_retries(installation, letter_id, steps)],
    )


def why_not_parked(installation: Installation, letter_id: str) -> str:
    """Return the state of a letter that is not parked, or who decided on it, and when."""
    try:
        found = describe(installation, letter_id)
    except NotFoundError:
        return "no letter has this id; `shardpost letters list` lists the known letters"
    for last in found.decisions[-1:]:
        return f"not parked: {last.kind} {last.when:%Y-%m-%d %H:%M} UTC by {last.who} ({last.why})"
    return f"not parked, but {found.state}"


def newest_record(kafka: Kafka, steps: Sequence[Step], generations: Generations) -> Record | None:
    """Return the last record with a value among a letter's steps, parked ones first.

    None if Kafka no longer has any. Each is read by its offset: topics may be long.
    """
    store = kafka.topic("dead-letters")
    there = [
        step
        for step in steps
        if step.is_in_topic and step.generation == generations.get(step.topic, 0)
    ]
    for step in sorted(there, key=lambda one: (one.topic == store, -one.offset)):
        partition = TopicPartition(step.topic, step.partition)
        record = read_one(kafka, partition, step.offset)
        if record is not None and record.value is not None:
            return record
    return None


def text_or_base64(raw: str | bytes | None) -> str | None:
    """Return bytes as text, or in base64 where they are not UTF-8."""
    text = utf8_text(raw)
    if text is None and isinstance(raw, bytes):
        return f"{letter_format.BASE64}{base64.b64encode(raw).decode()}"
    return text


def _decisions(kafka: Kafka, letter_id: str, steps: Sequence[Step]) -> Iterator[Decision]:
    """Yield the decisions about a letter in order; their key is that in the parking lot."""
    decided = (letter_format.LetterState.REDRIVEN, letter_format.LetterState.DISCARDED)
    times = [step.at for step in steps if step.state in decided and not step.is_by_hand]
    topic = kafka.topic("decisions")
    keys = letter_format.keys_of(letter_id)
    for partition in sorted({partition_with(kafka, topic, key) for key in keys}):
        for record in _written_about(kafka, partition, times):
            decision = decode(record.key, record.value)
            if decision is not None and letter_format.name_of(decision.about) == letter_id:
                yield decision


def _retries(installation: Installation, letter_id: str, steps: Sequence[Step]) -> Iterator[Record]:
    """Yield a letter's retries that are still in Kafka, in order, in the original key's partition.

    Nothing if no step has the letter's origin: then it was never retried.
    """
    origin = next((step for step in steps if step.origin_offset is not None), None)
    if origin is None or origin.origin_topic is None:
        return
    sent = (letter_format.LetterState.RETRIED, letter_format.LetterState.REDRIVEN)
    times = [step.at for step in steps if step.state in sent]
    topic = installation.settings.retry_rules.retry_topic(origin.origin_topic)
    own_id = origin.key or letter_id
    partition = partition_with(installation.kafka, topic, origin.origin_key or own_id)
    for record in _written_about(installation.kafka, partition, times):
        if letter_format.header_text(dict(record.headers).get(letter_format.ID)) == own_id:
            yield record


def _written_about(
    kafka: Kafka, partition: TopicPartition, times: Collection[datetime]
) -> Iterator[Record]:
    """Yield the records of a partition written around those times, each once.

    Records of a step are in its transaction and have its time, apart from clock differences.
    """
    read_up_to = 0
    for at in sorted(times):
        times_around = (at - CLOCKS_DIFFER, at + CLOCKS_DIFFER)
        begins, ends = (starts_since(kafka, [partition], one)[partition] for one in times_around)
        start = max(begins, read_up_to)
        if begins < 0 or 0 <= ends <= start:  # negative where no record is as late
            continue
        messages = read_to_end(kafka, partition, start=start, committed=True)
        for record in map(record_of, messages):
            if 0 <= ends <= record.offset:
                break
            read_up_to = record.offset + 1
            yield record


def _value_as_json(record: Record | None) -> dict[str, Any]:
    value = record.value if record else None
    return {"value": text_or_base64(value), "size": None if value is None else len(value)}
