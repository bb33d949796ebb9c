"""Whether run requests wait to be taken up, looked at again and again over one connection."""

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import admin, consumer, unreachable
from shardpost.run_requests import request_topics
from shardpost.run_requests.command_writer import GROUP
from shardpost.settings import Settings


class RequestWatch:
    """The ends of `run-requests`, beside the places up to which they were dispatched."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        count = request_topics.partitions(settings)
        topic = settings.topic("run-requests")
        self._places = [TopicPartition(topic, partition) for partition in range(count)]
        self._admin = admin(settings)
        self._reader = consumer(settings, GROUP)
        self._told: dict[int, int] = {}

    def news(self) -> dict[int, int] | None:
        """Return {partition: end} if anything waits, and something came since that was last said.

        What is said once and not dispatched is left to the schedule.
        """
        try:
            ends = self._ends()
            if ends == self._told:
                return None
            waits = any(ends[number] > place for number, place in self._dispatched().items())
        except KafkaException as error:
            raise unreachable(self._settings, error) from None
        self._told = ends
        return ends if waits else None

    def close(self) -> None:
        """Let go of Kafka."""
        self._reader.close()

    def _ends(self) -> dict[int, int]:
        asked = {place: OffsetSpec.latest() for place in self._places}  # type: ignore[no-untyped-call]
        futures = self._admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._settings.kafka_timeout,
        )
        return {place.partition: future.result().offset for place, future in futures.items()}

    def _dispatched(self) -> dict[int, int]:
        found = self._reader.committed(self._places, timeout=self._settings.kafka_timeout)
        return {place.partition: max(0, place.offset) for place in found}
