"""Dead letters for consumers: plain confluent-kafka, nothing else of Shardpost is needed.

A consumer that cannot process a message produces what `make_letter` returns, and goes on. Messages
come back in the retry topic (`retries`), which the consumer reads as well; one that fails again is
handed to `make_letter` in the same way, and becomes the same letter at its next attempt.
docs/dead-letters.md shows a whole consumer.
"""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shardpost.dead_letters.model import letter_format, letters
from shardpost.dead_letters.model.letter_format import Letter, Malformed
from shardpost.kafka.reading import record_of, reread_headers
from shardpost.topics.declared import PASSED_ON_BYTES, STORED_BYTES
from shardpost.values.retry_settings import RetrySettings

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = [
    "MAX_BYTES",
    "PRODUCER_SETTINGS",
    "Letter",
    "Malformed",
    "is_exhausted",
    "make_letter",
    "read_letter",
]

STORE = "dead-letters"
# How large a letter the topic accepts (its `max.message.bytes`), and settings of a producer that
# can write it: a letter is larger than the message that failed, and the client's default is 1 MB.
MAX_BYTES = STORED_BYTES
PRODUCER_SETTINGS = {"message.max.bytes": PASSED_ON_BYTES}
RETRY_TOPICS = ("retries",)
ATTEMPTS = RetrySettings().attempts


def make_letter(
    message: "Message",
    error: BaseException | str,
    *,
    partitions: int,
    failed_at: datetime,
    topic: str = STORE,
    retry_topics: Collection[str] = RETRY_TOPICS,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """Return what to produce, as arguments of `Producer.produce`, for a message that failed.

    Produce it with PRODUCER_SETTINGS. Where it would be larger than `max_bytes`, the
    `max.message.bytes` of the topic of dead letters, it has no value and no letter id: such a
    letter is not retried but parked, and says by its error and headers which message it was of.

    `partitions` is how many the topic of dead letters has; `failed_at` is aware. Only a message of
    one of `retry_topics` is taken for a retry: headers of a letter on any other are not trusted,
    since consumers may pass headers on. The error's text and the message's own headers are bounded
    in size (2,000 bytes and 32 kB); its value is not touched. ValueError for a message that is no
    record but an error of the client, for no partitions, and for a naive time.
    """
    if partitions < 1:
        raise ValueError(f"expected the number of partitions of {topic}, found {partitions}")
    if failed_at.tzinfo is None:
        raise ValueError(f"expected failed_at with its zone, found {failed_at.isoformat()}")
    if message.error():
        raise ValueError(f"expected a record, found an error of the client: {message.error()}")
    record = record_of(message, reread_headers(message))
    letter = letters.failure(record, error, failed_at, retry_topics)
    made = letters.as_record(letter, record, topic, partitions)
    return letters.fitting(made, max_bytes).arguments()


def read_letter(message: "Message") -> Letter | Malformed:
    """Return the letter that a message of `dead-letters` holds, or why it holds none."""
    return letter_format.parse_record(record_of(message, reread_headers(message)))


def is_exhausted(message: "Message", attempts: int = ATTEMPTS) -> bool:
    """Tell whether a message was retried so often that, failing again, it is parked.

    `attempts` is SHARDPOST_RETRY_ATTEMPTS.
    """
    return letter_format.attempt_of(reread_headers(message)) >= attempts
