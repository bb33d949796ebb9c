"""Whether run requests wait to be dispatched, checked again and again over one connection."""

from shardpost.kafka.end_watch import EndWatch
from shardpost.run_requests import request_topics
from shardpost.run_requests.command_writer import GROUP
from shardpost.settings import Settings


class RequestWatch:
    """The ends of `run-requests`, beside the offsets up to which they were dispatched."""

    def __init__(self, settings: Settings) -> None:
        count = request_topics.partitions(settings)
        self._watch = EndWatch(settings, settings.topic("run-requests"), count, GROUP)
        self._reported: dict[int, int] = {}

    def pending_ends(self) -> dict[int, int] | None:
        """Return {partition: end} if requests wait, and some came since that was last reported.

        What is reported once and not dispatched is left to the schedule. KafkaUnreachableError if
        Kafka does not answer.
        """
        ends = self._watch.stable_ends()
        if ends == self._reported:
            return None
        committed = self._watch.committed_offsets()
        self._reported = ends
        return ends if any(ends[number] > offset for number, offset in committed.items()) else None

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._watch.close()
