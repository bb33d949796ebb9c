"""Offsets: where partitions begin and end, where a time begins, what groups have committed.

Each is asked for many partitions at once.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import TRANSIENT_ERRORS, GroupConsumer
from shardpost.kafka.kafka import LEADER_SECONDS, Kafka
from shardpost.kafka.records import Coordinates, Offsets, TopicPartition, Watermarks
from shardpost.waiting import attempts

PARTITIONS_AT_ONCE = 2_000


class ListedOffset(NamedTuple):
    """An offset, and the timestamp (ms) of its record where a time was asked for, else -1."""

    offset: int
    timestamp: int


class Listed(NamedTuple):
    """The offset of each partition that answered; of each other one, why not."""

    found: dict[TopicPartition, ListedOffset]
    errors: dict[TopicPartition, KafkaException]

    @property
    def failed(self) -> dict[TopicPartition, str]:
        """Why partitions did not answer, in words."""
        return {partition: str(error.args[0].str()) for partition, error in self.errors.items()}

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offset of every partition; KafkaException if one did not answer."""
        for error in self.errors.values():
            raise error
        return {partition: listed.offset for partition, listed in self.found.items()}

    def require_all(self, kafka: Kafka) -> "Listed":
        """Return this; KafkaUnreachableError if a partition did not answer."""
        for error in self.errors.values():
            raise kafka.unreachable(error)
        return self


EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def beginnings(kafka: Kafka, partitions: Collection[TopicPartition]) -> Listed:
    """Return the low watermarks."""
    return _list_offsets(kafka, partitions, EARLIEST)


def endings(kafka: Kafka, partitions: Collection[TopicPartition], *, committed: bool) -> Listed:
    """Return the high watermarks; with `committed` the last stable offsets."""
    return _list_offsets(kafka, partitions, LATEST, committed=committed)


def first_offsets_since(kafka: Kafka, partitions: Collection[TopicPartition], at_ms: int) -> Listed:
    """Return the first records with that timestamp (ms) or a later one; offset -1 where none is.

    What lies above may have earlier timestamps. What an open transaction hides counts too.
    """
    spec: OffsetSpec = OffsetSpec.for_timestamp(max(at_ms, 0))
    return _list_offsets(kafka, partitions, spec)


def starts_since(
    kafka: Kafka, partitions: Collection[TopicPartition], at: datetime
) -> dict[TopicPartition, int]:
    """Return the same of all for a time; KafkaUnreachableError if one does not answer."""
    at_ms = int(at.timestamp() * 1000)
    return kafka.with_leaders(lambda: first_offsets_since(kafka, partitions, at_ms).offsets)


def _list_offsets(
    kafka: Kafka,
    partitions: Collection[TopicPartition],
    spec: OffsetSpec,
    *,
    committed: bool = False,
) -> Listed:
    if not partitions:
        return Listed({}, {})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    ask = partial(_ask, spec=spec, level=level)
    most = kafka.timeout
    first = min(most, LEADER_SECONDS)
    client, is_new = kafka.connected_admin()
    listed = ask(client, partitions, seconds=first)
    codes = {error.args[0].code() for error in listed.errors.values()}
    # It goes on asking a former leader, also one that died since it was told who leads. A broker
    # that is silent is not waited for twice as long.
    if codes and (first < most or (not is_new and codes.intersection(TRANSIENT_ERRORS))):
        kafka.forget_admin()
        client, _ = kafka.connected_admin()
        listed = ask(client, partitions, seconds=(most - first) or most)
    return listed


def _ask(
    client: AdminClient,
    partitions: Collection[TopicPartition],
    *,
    seconds: float,
    spec: OffsetSpec,
    level: IsolationLevel,
) -> Listed:
    listed, wanted = Listed({}, {}), list(partitions)
    for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
        asked = wanted[start : start + PARTITIONS_AT_ONCE]
        specs = {confluent_kafka.TopicPartition(*partition): spec for partition in asked}
        futures = client.list_offsets(specs, isolation_level=level, request_timeout=seconds)
        for asked_for, future in futures.items():
            partition = TopicPartition(asked_for.topic, asked_for.partition)
            try:
                listed.found[partition] = _listed(future.result())
            except KafkaException as error:
                listed.errors[partition] = error
    return listed


def _listed(answer: ListOffsetsResultInfo) -> ListedOffset:
    if answer.offset == OFFSET_INVALID:  # librdkafka, of a broker that is lost meanwhile
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    return ListedOffset(int(answer.offset), int(answer.timestamp))


def watermarks(
    kafka: Kafka, counts: Mapping[str, int], *, committed: bool
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return {topic: {partition: (low, high)}} of topics with so many partitions, in their order.

    With `committed`, high is the last stable offset: the end of what readers of committed records
    are given; otherwise the high watermark. KafkaUnreachableError after `kafka_timeout`.
    """
    partitions = [
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    ]
    marks = watermarks_of(kafka, partitions, committed=committed)
    found: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic in counts}
    for partition, low_and_high in marks.items():
        found[partition.topic][partition.partition] = low_and_high
    return found


def partitions_with_records(kafka: Kafka, counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions of topics that hold any record, committed or not."""
    return [
        TopicPartition(topic, partition)
        for topic, marks in watermarks(kafka, counts, committed=False).items()
        for partition, (low, high) in marks.items()
        if low < high
    ]


def watermark_of(kafka: Kafka, partition: TopicPartition, *, committed: bool) -> tuple[int, int]:
    """Return (low, high) of one partition, as `watermarks` does."""
    return watermarks_of(kafka, [partition], committed=committed)[partition]


def watermarks_of(
    kafka: Kafka, partitions: Sequence[TopicPartition], *, committed: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """Return {partition: (low, high)}, as `watermarks` does."""

    def ask() -> dict[TopicPartition, tuple[int, int]]:
        lows, ends = (  # where a partition begins, both levels say alike
            _list_offsets(kafka, partitions, spec, committed=committed).offsets
            for spec in (EARLIEST, LATEST)
        )
        return {partition: (lows[partition], ends[partition]) for partition in partitions}

    return kafka.with_leaders(ask)


def ends_of(marks: Watermarks) -> dict[str, dict[int, int]]:
    """Return the ends alone."""
    return {
        topic: {partition: end for partition, (_, end) in partitions.items()}
        for topic, partitions in marks.items()
    }


# How long open transactions are waited for.
STABLE_SECONDS = 5.0
STABLE_POLL_SECONDS = 0.1


class StableEnds(NamedTuple):
    """The high watermarks as they were at first, and (low, last stable offset) as they are now."""

    high: Offsets
    stable: Watermarks

    @property
    def open(self) -> list[Coordinates]:
        """Where transactions begin that were open still: what comes after them cannot be read."""
        return [
            Coordinates(topic, partition, stable)
            for topic, partitions in self.stable.items()
            for partition, (_, stable) in partitions.items()
            if stable < self.high[topic][partition]
        ]


def stable_ends(
    kafka: Kafka, counts: Mapping[str, int], most_seconds: float = STABLE_SECONDS
) -> StableEnds:
    """Return how far topics with so many partitions can be read, asked for in their order.

    Waits so long, and `kafka_timeout`, at most for transactions that are open, which are short as a
    rule; what comes meanwhile is not waited for.
    """
    high = ends_of(watermarks(kafka, counts, committed=False))
    for _ in attempts(min(most_seconds, kafka.timeout), STABLE_POLL_SECONDS):
        found = StableEnds(high, watermarks(kafka, counts, committed=True))
        if not found.open:
            break
    return found


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, and the metadata with it."""

    offset: int
    metadata: str | None


# So many clients ask a group's coordinator before it is given up.
TRIES = 4


def committed_offsets(
    kafka: Kafka, reader: GroupConsumer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the reader's committed offsets, for partitions that have one.

    A new client asks again after a timeout: a client may keep to a coordinator that has left the
    cluster.
    """
    asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
    seconds, readers = kafka.timeout / TRIES, [reader]

    def ask() -> list[confluent_kafka.TopicPartition]:
        try:
            return _without_errors(readers[-1].committed(asked, timeout=seconds))
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:
                reader.is_stale = True
                readers.append(kafka.consumer(reader.group))
            raise

    try:
        found = kafka.with_leaders(ask)
    finally:
        for made in readers[1:]:
            made.close()
    return {
        TopicPartition(one.topic, one.partition): CommittedOffset(one.offset, one.metadata or None)
        for one in found
        if one.offset >= 0
    }


def committed_offset(kafka: Kafka, reader: GroupConsumer, partition: TopicPartition) -> int | None:
    """Return the offset that the reader's group has committed; None where it has none."""
    found = committed_offsets(kafka, reader, [partition])
    return found[partition].offset if partition in found else None


def commit_offsets(kafka: Kafka, group: str, offsets: Offsets, metadata: str = "") -> None:
    """Commit offsets to a consumer group without being its member, for lag tools to see."""
    committing = [
        confluent_kafka.TopicPartition(topic, partition, offset, metadata)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    ]
    places = [TopicPartition(one.topic, one.partition) for one in committing]
    try:
        with kafka.kept_consumer(group) as client:
            # `commit` is given no deadline; a coordinator that answers this one is there.
            committed_offsets(kafka, client, places)
            answers = closing(kafka.consumer(group)) if client.is_stale else nullcontext(client)
            with answers as one:
                _without_errors(one.commit(offsets=committing, asynchronous=False))
    except KafkaException as error:
        raise kafka.unreachable(error) from None


def _without_errors(
    found: list[confluent_kafka.TopicPartition],
) -> list[confluent_kafka.TopicPartition]:
    for failed in filter(attrgetter("error"), found):
        raise KafkaException(failed.error)
    return found
