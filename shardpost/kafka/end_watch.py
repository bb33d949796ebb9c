"""The ends of a topic and the offsets of a group, asked for again and again over one connection."""

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import admin, consumer, unreachable
from shardpost.settings import Settings


class EndWatch:
    """The partitions of one topic, as a consumer group sees them.

    Its clients stay connected until `close`. Raises KafkaUnreachableError if Kafka does not answer.
    """

    def __init__(self, settings: Settings, topic: str, partitions: int, group: str) -> None:
        self._settings = settings
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._admin = admin(settings)
        self._group = consumer(settings, group)

    def stable_ends(self) -> dict[int, int]:
        """Return {partition: last stable offset}."""
        wanted = {one: OffsetSpec.latest() for one in self._partitions}  # type: ignore[no-untyped-call]
        try:
            futures = self._admin.list_offsets(
                wanted,
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._settings.kafka_timeout,
            )
            return {one.partition: future.result().offset for one, future in futures.items()}
        except KafkaException as error:
            raise unreachable(self._settings, error) from None

    def committed_offsets(self) -> dict[int, int]:
        """Return {partition: offset that the group has committed}; 0 where it has none."""
        try:
            found = self._group.committed(self._partitions, timeout=self._settings.kafka_timeout)
        except KafkaException as error:
            raise unreachable(self._settings, error) from None
        return {one.partition: max(0, one.offset) for one in found}

    def close(self) -> None:
        """Close the connections."""
        self._group.close()
