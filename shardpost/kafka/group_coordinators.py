"""Whether all coordinators of groups are ready to answer for them.

One that has just taken over, or has just started, leaves its groups out of a list of all groups
without a word; and librdkafka dies of what it answers to a request for a group's offsets
(https://github.com/confluentinc/librdkafka/issues/5040). So it is asked first for a group that
nobody has: to that it says that it is not ready.
"""

import itertools
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from shardpost.kafka.partitioning import partition_of_group

OFFSETS_TOPIC = "__consumer_offsets"
ASK_AGAIN_SECONDS = 0.2
_NOT_READY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}


@dataclass(frozen=True)
class Coordinators:
    """How many partitions `__consumer_offsets` has, and those whose coordinators are not ready."""

    partitions: int
    unready: frozenset[int] = frozenset()

    def is_ready(self, group: str) -> bool:
        """Tell whether a group's coordinator answers for it."""
        return partition_of_group(group, self.partitions) not in self.unready


def await_coordinators(client: AdminClient, seconds: float) -> Coordinators:
    """Wait until every coordinator is ready, so long at most.

    Without `__consumer_offsets` there are no groups. KafkaException if Kafka does not answer.
    """
    found = client.list_topics(timeout=seconds).topics.get(OFFSETS_TOPIC)
    count = len(found.partitions) if found and not found.error else 0
    left = _probes(count)
    deadline = time.monotonic() + seconds
    while left:
        asked = client.describe_consumer_groups([*left.values()], request_timeout=seconds)
        left = {number: name for number, name in left.items() if not _is_ready(asked[name])}
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(ASK_AGAIN_SECONDS)
    return Coordinators(count, frozenset(left))


def _probes(partitions: int) -> dict[int, str]:
    """Return for each partition the name of a group that would be in it, and that nobody has."""
    found: dict[int, str] = {}
    for number in itertools.count():
        if len(found) == partitions:
            return found
        name = f"shardpost-asks-{number}"
        found.setdefault(partition_of_group(name, partitions), name)
    raise AssertionError  # it counts for ever


def _is_ready(answer: "Future[Any]") -> bool:
    """Tell whether it answered, be it that there is no such group, or no right to see it."""
    try:
        answer.result()
    except KafkaException as error:
        return error.args[0].code() not in _NOT_READY
    return True
