"""Single letters as Kafka keeps them, in the store or in the parking lot."""

import base64
from typing import Any

from shardpost.adapters import kafka
from shardpost.adapters.letters_table import life
from shardpost.adapters.messages import record_of
from shardpost.domain.dealing import Routes
from shardpost.domain.partitioning import partition_of
from shardpost.domain.records import Record
from shardpost.errors import ShardpostError
from shardpost.settings import Settings


def routes_of(settings: Settings) -> Routes:
    """Return the topics of letters; ShardpostError for one that does not exist."""
    store, lot = settings.topic_dead_letters, settings.topic_parking_lot
    topics = sorted({store, lot, *_retry_topics(settings)})
    return Routes(store, lot, kafka.partition_counts(settings, topics))


def no_origins(settings: Settings) -> frozenset[str]:
    """Return the retry topics that are no origin.

    A letter of one of them is of a retry that did not say where it came from. What has a topic for
    its retries (SHARDPOST_RETRY_ORIGINS) is an origin, even if retries come to it.
    """
    rules = settings.retry_rules
    return frozenset(name for name in _retry_topics(settings) if not rules.backoff(name).topic)


def _retry_topics(settings: Settings) -> set[str]:
    of_origins = {rule.topic for rule in settings.retry_rules.of_origin.values() if rule.topic}
    return {settings.topic_retries, *of_origins}


def describe(settings: Settings, letter_id: str) -> dict[str, Any]:
    """Return a letter's headers, value and life; ShardpostError if nothing knows it.

    Bytes that are no text are given in base64, with that word before them.
    """
    steps = life(settings, letter_id)
    record = newest(settings, letter_id)
    if not steps and record is None:
        raise ShardpostError(f"no letter {letter_id}: `shardpost letters list` names those known")
    value = record.value if record else None
    return {
        "letter_id": letter_id,
        "state": str(steps[-1].state) if steps else None,
        "where": _where(record),
        "headers": [(name, readable(raw)) for name, raw in record.headers] if record else [],
        "value": readable(value),
        "size": None if value is None else len(value),
        "life": [
            {**step.as_json(), "at": step.at.isoformat(timespec="milliseconds")} for step in steps
        ],
    }


def newest(settings: Settings, letter_id: str) -> Record | None:
    """Return the last record with a value under a letter's id, parked ones first.

    None if Kafka has no value of it any more.
    """
    lot, store = settings.topic_parking_lot, settings.topic_dead_letters
    counts = kafka.partition_counts(settings, [lot, store])
    places = [(lot, partition_of(letter_id, counts[lot]))]
    places += [(store, partition) for partition in range(counts[store])]
    for topic, partition in places:
        found = None
        for message in kafka.read_to_end(settings, topic, partition, committed=True):
            if message.key() == letter_id.encode() and message.value() is not None:
                found = record_of(message)
        if found is not None:
            return found
    return None


def readable(raw: str | bytes | None) -> str | None:
    """Return bytes as text, or in base64 where they are none."""
    if not isinstance(raw, bytes):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"base64 {base64.b64encode(raw).decode()}"


def _where(record: Record | None) -> str:
    if record is None:
        return "its value is no longer in Kafka"
    return f"{record.topic}[{record.partition}]@{record.offset}"
