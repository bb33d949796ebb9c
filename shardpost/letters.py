"""Dead letters for consumers: plain confluent-kafka, nothing else of Shardpost is needed.

A consumer that cannot process a message produces what `make_letter` returns, and goes on. Messages
come back in the retry topic (`retries`), which the consumer reads as well; one that fails again is
handed to `make_letter` in the same way, and becomes the same letter at its next attempt.
docs/dead-letters.md shows a whole consumer.
"""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shardpost.dead_letters.model import letters
from shardpost.dead_letters.model.letters import Letter, Malformed
from shardpost.kafka.messages import headers_again, record_of
from shardpost.retry_settings import RetrySettings

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["Letter", "Malformed", "is_exhausted", "make_letter", "read_letter"]

STORE = "dead-letters"
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
) -> dict[str, Any]:
    """Return what to produce, as arguments of `Producer.produce`, for a message that failed.

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
    record = record_of(message)._replace(headers=headers_again(message))
    letter = letters.failure(record, error, failed_at, retry_topics)
    return letters.as_record(letter, record, topic, partitions)._asdict()


def read_letter(message: "Message") -> Letter | Malformed:
    """Return the letter that a message of the store is, or why it is none."""
    return letters.parse(message.key(), headers_again(message), message.timestamp()[1])


def is_exhausted(message: "Message", attempts: int = ATTEMPTS) -> bool:
    """Tell whether a message was retried so often that, failing again, it is parked.

    `attempts` is SHARDPOST_RETRY_ATTEMPTS.
    """
    return letters.attempt_of(headers_again(message)) >= attempts
