"""What `letters show` prints: one letter's headers, value, life, decisions and retries."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardpost.dead_letters import letter_topics
from shardpost.dead_letters.letters_table import life
from shardpost.dead_letters.model.letter_format import (
    BASE64,
    ID,
    SHA256,
    attempt_of,
    header_text,
    keys_of,
    name_of,
    parse_record,
)
from shardpost.dead_letters.model.letter_history import Step, newest_steps
from shardpost.dead_letters.model.letters import letter_id as letter_id_of
from shardpost.dead_letters.model.letters import parking_key
from shardpost.decisions import Decision, decode
from shardpost.errors import ShardpostError, one_line
from shardpost.instants import instant_of
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Record
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings import Settings

# The state of a letter that was waiting or parked in a topic that was deleted and recreated.
LOST = "lost"


@dataclass(frozen=True)
class LetterDetails:
    """One letter; `record` is the newest with its value, None if Kafka has none any more."""

    letter_id: str
    state: str | None
    record: Record | None
    life: Sequence[Step]
    decisions: Sequence[Decision]
    retries: Sequence[Record]

    def as_json(self) -> dict[str, Any]:
        """Return the form of `letters show --json`.

        Bytes that are not UTF-8 are given in base64, with that word before them.
        """
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
            "retries": [_retry_as_json(retry) for retry in self.retries],
        }


def describe(settings: Settings, letter_id: str) -> LetterDetails:
    """Return the details of a letter; ShardpostError if it is unknown."""
    steps = life(settings, letter_id)
    record = newest_record(settings, letter_id)
    newest = newest_steps(steps, letter_topics.current_progress(settings).generations).get(
        letter_id
    )
    is_known = not all(step.is_by_hand for step in steps)
    if not is_known and record is None:
        raise ShardpostError(
            f"no letter {one_line(letter_id)}: `shardpost letters list` lists those known"
        )
    return LetterDetails(
        letter_id,
        str(newest.state) if newest else (LOST if is_known else None),
        record,
        steps,
        [*_decisions(settings, letter_id)],
        [*_retries(settings, letter_id, steps)],
    )


def newest_record(settings: Settings, letter_id: str) -> Record | None:
    """Return the last record with a value under a letter's id, parked ones first; None: none."""
    counts = letter_topics.partitions(settings)
    lot, store = settings.topic("parking-lot"), settings.topic("dead-letters")
    of_its_keys = sorted({partition_of(key, counts[lot]) for key in keys_of(letter_id)})
    partitions = [TopicPartition(lot, number) for number in of_its_keys]
    partitions += [TopicPartition(store, number) for number in range(counts[store])]
    for partition in partitions:
        count = counts[store] if partition.topic == store else None
        newest = None
        for record in map(record_of, read_to_end(settings, partition, committed=True)):
            if record.value is not None and _is_of(record, letter_id, count):
                newest = record
        if newest is not None:
            return newest
    return None


def _is_of(record: Record, letter_id: str, store_partitions: int | None) -> bool:
    """Tell whether a record is of a letter, whose name in the store may differ from its key."""
    key = name_of(record.key)
    if store_partitions is None:
        return key == letter_id
    beginnings = (key, letter_id_of(record.coordinates, 0), SHA256)
    if not letter_id.startswith(beginnings):
        return False
    return name_of(parking_key(parse_record(record), record, store_partitions)) == letter_id


def text_or_base64(raw: str | bytes | None) -> str | None:
    """Return bytes as text, or in base64 where they are not UTF-8."""
    if not isinstance(raw, bytes):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"{BASE64}{base64.b64encode(raw).decode()}"


def _decisions(settings: Settings, letter_id: str) -> Iterator[Decision]:
    """Yield the decisions about a letter, in order; their key is that of the parking lot."""
    topic = settings.topic("decisions")
    count = partition_counts(settings, [topic])[topic]
    for number in sorted({partition_of(key, count) for key in keys_of(letter_id)}):
        partition = TopicPartition(topic, number)
        for message in read_to_end(settings, partition, committed=True):
            decision = decode(message.key(), message.value())
            if decision is not None and name_of(decision.about) == letter_id:
                yield decision


def _retries(settings: Settings, letter_id: str, steps: Sequence[Step]) -> Iterator[Record]:
    """Yield the retries of a letter that Kafka has, in order; they are placed by the original key.

    None if no step says where the letter came from: then it was never retried.
    """
    origin = next((step for step in steps if step.origin_offset is not None), None)
    if origin is None or origin.origin_topic is None:
        return
    topic = settings.retry_rules.retry_topic(origin.origin_topic)
    count = partition_counts(settings, [topic])[topic]
    own_id = origin.key or letter_id
    partition = TopicPartition(topic, partition_of(origin.origin_key or own_id, count))
    for record in map(record_of, read_to_end(settings, partition, committed=True)):
        if header_text(dict(record.headers).get(ID)) == own_id:
            yield record


def _retry_as_json(retry: Record) -> dict[str, Any]:
    return {
        "where": str(retry.coordinates),
        "at": instant_of(retry.timestamp).isoformat(timespec="milliseconds"),
        "attempt": attempt_of(retry.headers),
        **_value_as_json(retry),
    }


def _value_as_json(record: Record | None) -> dict[str, Any]:
    value = record.value if record else None
    return {"value": text_or_base64(value), "size": None if value is None else len(value)}
