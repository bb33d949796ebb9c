"""Messages of confluent-kafka as records."""

import gc
from operator import methodcaller

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from shardpost.kafka.records import HEADERS_LEFT_OUT, HEADERS_UNREADABLE, Headers, Record

# Where a name is no UTF-8, the client returns a result and leaves an exception behind. CPython
# looks for that in calls from C, and not in calls that its interpreter has specialised.
_headers = methodcaller("headers")


def headers_of(message: Message) -> Headers:
    """Return the headers, in order; one name may stand there more than once.

    Where a name is no UTF-8 the client gives none of them; then one header says so.
    """
    try:
        found = _headers(message)
    except (SystemError, UnicodeDecodeError):
        return [(HEADERS_LEFT_OUT, HEADERS_UNREADABLE)]
    return found if isinstance(found, list) else list((found or {}).items())


def reread_headers(message: Message) -> Headers:
    """Return the headers of a message whose headers may have been asked for before.

    If that failed, the client then gives pairs without a name, and to touch one ends the process.
    """
    found = headers_of(message)
    is_whole = all(len(gc.get_referents(pair)) == len(pair) for pair in found)
    return found if is_whole else [(HEADERS_LEFT_OUT, HEADERS_UNREADABLE)]


def record_of(message: Message, headers: Headers | None = None) -> Record:
    """Return a message that was read, and is no error, as a record; with its headers if known."""
    kind, timestamp = message.timestamp()
    return Record(
        message.key(),
        message.value(),
        headers_of(message) if headers is None else headers,
        timestamp,
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )
