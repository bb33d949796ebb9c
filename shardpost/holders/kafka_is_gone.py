"""What a compaction says where Kafka is gone before its commit."""

from collections.abc import Iterator
from contextlib import contextmanager

from shardpost.kafka.clients import KafkaUnreachableError, require_listening
from shardpost.settings import Settings


@contextmanager
def saying_that_nothing_changed(settings: Settings) -> Iterator[None]:
    """Say that of an error of a Kafka that is gone: after the commit it is another error.

    Spark's own errors are of a timeout; then it is asked whether Kafka is there.
    """
    try:
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                require_listening(settings)
            raise
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(f"nothing was changed: {error}; then run it again") from None
