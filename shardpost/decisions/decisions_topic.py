"""The topic `decisions`: its records are written within the transactions of the features."""

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from datetime import datetime, timedelta

from shardpost.decisions import Decision, Kind, decode
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError
from shardpost.kafka.offsets import endings, starts_since
from shardpost.kafka.reading import headers_of, read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.kafka.topic_metadata import partitions_of
from shardpost.kafka.transactions import MayWrite, Transactions

# How far the time of a record may be before the time that its decision says.
CLOCKS_DIFFER = timedelta(days=1)


def written(kafka: Kafka, decision: Decision, headers: dict[str, bytes]) -> Outgoing:
    """Return the record of a decision."""
    topic = kafka.topic("decisions")
    return Outgoing(topic, decision.about, decision.value(), [*headers.items()])


def record(
    kafka: Kafka,
    transactional_id: str,
    decision: Decision,
    headers: dict[str, bytes],
    *,
    may_write: MayWrite,
    done: str,
    unless: Callable[[], bool] = lambda: False,
) -> None:
    """Write a decision in a transaction of its own, `unless`, once nobody else writes it, it is.

    Errors end with `done`: what was done before, and what to do.
    """
    text = done.replace("{", "{{").replace("}", "}}")
    writer = Transactions(
        kafka,
        transactional_id,
        may_write=may_write,
        fenced=f"another process is deciding the same: {done}",
        failed=f"the decision may not be on record ({{reason}}): {text}",
    )
    try:
        with closing(writer) as transactions:
            transactions.open()
            if not unless():
                transactions.write([written(kafka, decision, headers)])
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(f"the decision is not on record ({error}): {done}") from None


def list_since(
    kafka: Kafka, oldest: datetime, kinds: Collection[Kind] | None = None, most: int | None = None
) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield the decisions since a time, with their headers, and read none that is far older.

    Only those of these kinds, and only among so many offsets at the end of a partition; None: all.
    Letters are decided upon a million at a time.
    """
    partitions = partitions_of(kafka, kafka.topic("decisions"))
    starts = starts_since(kafka, partitions, oldest - CLOCKS_DIFFER)
    ends = endings(kafka, partitions, committed=True).offsets if most else {}
    for partition, start in sorted(starts.items()):
        if start >= 0:
            first = max(start, ends[partition] - most) if most else start
            for decision, headers in of_partition(kafka, partition.partition, first, kinds):
                if decision.when >= oldest:
                    yield decision, headers


def of_partition(
    kafka: Kafka, partition: int, start: int | None, kinds: Collection[Kind] | None = None
) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield the decisions of one partition from that offset on, with their headers."""
    source = TopicPartition(kafka.topic("decisions"), partition)
    for message in read_to_end(kafka, source, start=start):
        value = message.value() or b""
        if kinds is not None and not any(kind.encode() in value for kind in kinds):
            continue  # it takes longer to decode it
        decision = decode(message.key(), value)
        if decision is not None and (kinds is None or decision.kind in kinds):
            headers = headers_of(message)
            yield decision, {name: raw for name, raw in headers if isinstance(raw, bytes)}
