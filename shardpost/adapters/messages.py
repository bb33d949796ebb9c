"""Messages of confluent-kafka as records."""

from confluent_kafka import Message

from shardpost.domain.records import Headers, Record


def headers_of(message: Message) -> Headers:
    """Return the headers, in order; one name may stand there more than once."""
    found = message.headers()
    return found if isinstance(found, list) else list((found or {}).items())


def record_of(message: Message) -> Record:
    """Return a message that was read, and is no error, as a record."""
    return Record(
        message.key(),
        message.value(),
        headers_of(message),
        message.timestamp()[1],
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
    )
