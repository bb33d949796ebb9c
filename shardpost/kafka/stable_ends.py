"""How far readers of committed records get, and whether an open transaction hides what is behind.

Transactions are short as a rule: so the last stable offsets are given some time to reach the high
watermarks as they were at first. What comes meanwhile is not waited for.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from shardpost.instants import instant_of
from shardpost.kafka import offsets
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.offset_ranges import Offsets, Watermarks, ends
from shardpost.kafka.open_transaction import OpenTransaction, unreached
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings

# How long open transactions are waited for.
STABLE_SECONDS = 5.0
POLL_SECONDS = 0.1


class StableEnds(NamedTuple):
    """The high watermarks as they were at first, and (low, last stable offset) as they are now."""

    high: Offsets
    stable: Watermarks


def stable_ends(settings: Settings, counts: Mapping[str, int]) -> StableEnds:
    """Return how far topics with so many partitions can be read, asked for in their order.

    Waits STABLE_SECONDS, and `kafka_timeout`, at most for transactions that are open.
    """
    high = ends(offsets.watermarks(settings, counts, committed=False))
    deadline = time.monotonic() + min(STABLE_SECONDS, settings.kafka_timeout)
    while True:
        stable = offsets.watermarks(settings, counts, committed=True)
        is_reached = next(unreached(high, ends(stable)), None) is None
        if is_reached or time.monotonic() >= deadline:
            return StableEnds(high, stable)
        time.sleep(POLL_SECONDS)


def open_transactions(settings: Settings, found: StableEnds) -> list[OpenTransaction]:
    """Return the first transaction of each partition that is still open."""
    return [opened(settings, begins) for begins in unreached(found.high, ends(found.stable))]


def opened(settings: Settings, begins: Coordinates) -> OpenTransaction:
    """Return the transaction that is open from a last stable offset on.

    KafkaUnreachableError if its partition cannot be read now.
    """
    partition, offset = begins.topic_partition, begins.offset
    first = next(read_to_end(settings, partition, start=offset, uncommitted=True), None)
    return OpenTransaction(begins, None if first is None else instant_of(first.timestamp()[1]))
