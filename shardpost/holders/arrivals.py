"""What comes to the inputs after a turn: whether the next one is due, and the wait for it.

Kafka is asked where the topics end, which alone decides. Between two looks a record is waited for,
so that a turn begins when it comes and not up to a look later.
"""

import time
from collections.abc import Mapping

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.inputs import Inputs
from shardpost.installation import Installation
from shardpost.kafka.clients import AwaitedRecords
from shardpost.kafka.coordinates import TopicPartition

# While each look finds this share more than the look before, a turn waits for the rest of a burst,
# which would else wait for the turn: seconds between two such looks, and at most.
BURST_SHARE = 0.15
BURST_LOOK = 0.05
LONGEST_BURST = 0.6


class Arrivals:
    """What has come to the inputs since the newest snapshot; to be closed."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._records = AwaitedRecords(installation.kafka.consumer)
        # Where partitions end that end elsewhere than read: now, and when a turn found nothing.
        self._ends: dict[TopicPartition, int] = {}
        self._ends_of_nothing: dict[TopicPartition, int] = {}
        self._came = False  # a record, since a turn was due

    def close(self) -> None:
        """Wait for nothing more."""
        self._records.close()

    def look(self, last: Snapshot) -> bool:
        """Tell whether something new is there that no turn has looked at; errors of Kafka.

        While much more comes it waits, as a turn of more records takes hardly longer.
        """
        self._ends = Inputs(self._installation).other_ends(last)
        if not self._ends or self._ends == self._ends_of_nothing:
            return False
        self._came = False
        read, is_burst = _read(last), True
        until = time.monotonic() + LONGEST_BURST
        while is_burst and time.monotonic() < until:
            time.sleep(BURST_LOOK)
            before = _size(read, self._ends)
            self._ends = Inputs(self._installation).other_ends(last)
            is_burst = _size(read, self._ends) - before > BURST_SHARE * before
        return True

    def note(self, *, is_changed: bool) -> None:
        """Take in whether a turn has found something.

        Where topics end elsewhere, and it did not, they may end there for long.
        """
        self._ends_of_nothing = {} if is_changed else self._ends

    def wait(self, last: Snapshot, seconds: float) -> bool:
        """Wait for something new, for so long; tell whether it came, as far as that is known.

        After a record with which no turn was due, it waits for the next look.
        """
        if self._came:
            time.sleep(seconds)
            return False
        offsets = _read(last)
        for partition, end in self._ends_of_nothing.items():  # another run may have read on
            offsets[partition] = max(end, offsets.get(partition, 0))
        self._came = self._records.wait(offsets, seconds)
        return self._came


def _read(last: Snapshot) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): end
        for topic, ends in last.end_offsets.items()
        for number, end in ends.items()
    }


def _size(read: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(abs(end - read.get(partition, 0)) for partition, end in ends.items())
