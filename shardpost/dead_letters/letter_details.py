"""Single letters as Kafka keeps them, in the store or in the parking lot."""

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from shardpost.dead_letters.letters_table import life
from shardpost.dead_letters.model.letter_names import BASE64, keys_of, name_of
from shardpost.dead_letters.model.letters import ID, attempt_of
from shardpost.dead_letters.model.life import Step, fold
from shardpost.dead_letters.model.transitions import Routes, as_text
from shardpost.decisions.decision import Decision, decode
from shardpost.errors import ShardpostError
from shardpost.kafka import offsets, reading
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Record
from shardpost.printable import one_line
from shardpost.settings import Settings


def routes_of(settings: Settings) -> Routes:
    """Return the topics of letters; ShardpostError for one that does not exist."""
    store, lot = settings.topic("dead-letters"), settings.topic("parking-lot")
    topics = sorted({store, lot, *settings.retry_rules.retry_topics})
    return Routes(store, lot, offsets.partition_counts(settings, topics))


def describe(settings: Settings, letter_id: str) -> dict[str, Any]:
    """Return a letter's headers, value, life, decisions and retries; ShardpostError if unknown.

    Bytes that are no text are given in base64, with that word before them.
    """
    steps = life(settings, letter_id)
    record = newest(settings, letter_id)
    stands = fold(steps).get(letter_id)
    if stands is None and record is None:
        raise ShardpostError(
            f"no letter {one_line(letter_id)}: `shardpost letters list` names those known"
        )
    return {
        "letter_id": letter_id,
        "state": str(stands.state) if stands else None,
        "where": _where(record) if record else "its value is no longer in Kafka",
        "headers": [(name, readable(raw)) for name, raw in record.headers] if record else [],
        **_value(record),
        "life": [
            {**step.as_json(), "at": step.at.isoformat(timespec="milliseconds")} for step in steps
        ],
        "decisions": [decision.as_json() for decision in _decisions(settings, letter_id)],
        "retries": [_sent(retry) for retry in _retries(settings, letter_id, steps)],
    }


def newest(settings: Settings, letter_id: str) -> Record | None:
    """Return the last record with a value under a letter's id, parked ones first.

    None if Kafka has no value of it any more.
    """
    lot, store = settings.topic("parking-lot"), settings.topic("dead-letters")
    counts = offsets.partition_counts(settings, [lot, store])
    homes = sorted({partition_of(key, counts[lot]) for key in keys_of(letter_id)})
    places = [(lot, partition) for partition in homes]
    places += [(store, partition) for partition in range(counts[store])]
    for topic, partition in places:
        found = None
        for message in reading.read_to_end(
            settings, TopicPartition(topic, partition), committed=True
        ):
            if message.value() is not None and name_of(message.key()) == letter_id:
                found = record_of(message)
        if found is not None:
            return found
    return None


def _decisions(settings: Settings, letter_id: str) -> Iterator[Decision]:
    """Yield what was decided about a letter, in order; the key of a decision is that of the lot."""
    topic = settings.topic("decisions")
    count = offsets.partition_counts(settings, [topic])[topic]
    for partition in sorted({partition_of(key, count) for key in keys_of(letter_id)}):
        for message in reading.read_to_end(
            settings, TopicPartition(topic, partition), committed=True
        ):
            decision = decode(message.key(), message.value())
            if decision is not None and name_of(decision.about) == letter_id:
                yield decision


def _retries(settings: Settings, letter_id: str, steps: Sequence[Step]) -> Iterator[Record]:
    """Yield the retries of a letter that Kafka has, in order; they lie where the original key is.

    None if no step says where the letter came from: then it was never retried.
    """
    origin = next((step for step in steps if step.origin_offset is not None), None)
    if origin is None or origin.origin_topic is None:
        return
    topic = settings.retry_rules.retry_topic(origin.origin_topic)
    count = offsets.partition_counts(settings, [topic])[topic]
    home = partition_of(origin.origin_key or letter_id, count)
    for message in reading.read_to_end(settings, TopicPartition(topic, home), committed=True):
        record = record_of(message)
        if as_text(dict(record.headers).get(ID)) == letter_id:
            yield record


def _sent(retry: Record) -> dict[str, Any]:
    at = datetime.fromtimestamp(retry.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    attempt = attempt_of(retry.headers)
    return {"where": _where(retry), "at": at, "attempt": attempt, **_value(retry)}


def _value(record: Record | None) -> dict[str, Any]:
    value = record.value if record else None
    return {"value": readable(value), "size": None if value is None else len(value)}


def readable(raw: str | bytes | None) -> str | None:
    """Return bytes as text, or in base64 where they are none."""
    if not isinstance(raw, bytes):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"{BASE64}{base64.b64encode(raw).decode()}"


def _where(record: Record) -> str:
    return f"{record.topic}[{record.partition}]@{record.offset}"
