"""The histories of a rebuild: decoded again from the raw records, or read from Kafka.

From Kafka they are read up to the ends of the pinned snapshot. Records whose contact was erased may
still be in the topics; tables made of them may not have it.

The units of work are each done as a whole, in an order that never changes. What one has made is
committed with the row of the rebuild: so a run that goes on after another one was killed skips the
units that are done.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.delta.rewritten_files import ERASED
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.inputs import input_topics
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import lowest_of
from shardpost.holders.model.topic_state import Unread
from shardpost.holders.model.view_tables import RETRY_NAMES
from shardpost.holders.spark.compaction_run import (
    CompactionRun,
    InputTopic,
    ReadRecords,
    TableWriter,
)
from shardpost.holders.spark.corrections import read_corrections
from shardpost.holders.spark.history import (
    KNOWN_SEQ,
    KNOWN_SNAPSHOT,
    append_corrections,
    append_originals,
    decode,
)
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import OffsetRange, Watermarks, total_size
from shardpost.kafka.topic_metadata import changed_topics, require_same_topics, topic_ids
from shardpost.spark import delta_files, run_size

# A unit has about so many records: some ten seconds of work.
RECORDS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Unit:
    """A unit of work: its name in the log, its number of records, and its function."""

    name: str
    records: int
    work: Callable[[], None]


_PLACE = ("partition", "offset")


def is_erased(kind: Column, value: Column, reason: Column) -> Column:
    """Tell which rows of a history were erased; null where nothing is known of a row."""
    of_upsert = (kind == RecordKind.UPSERT.value) & value.isNull()
    return of_upsert | ((kind == RecordKind.REJECTED.value) & (reason == ERASED))


def _known(rows: DataFrame, partition: str, offset: str) -> DataFrame:
    """Return one row for each place, of the record that was read there last."""
    known = F.struct(
        F.col("seq").alias(KNOWN_SEQ),
        F.col("snapshot").alias(KNOWN_SNAPSHOT),
        _was_erased().alias("was_erased"),
    )
    by_place = rows.groupBy(partition, offset).agg(F.max_by(known, "snapshot").alias("last"))
    place = F.col(partition).alias("partition"), F.col(offset).alias("offset")
    return by_place.select(*place, "last.*")


def _was_erased() -> Column:
    return F.coalesce(is_erased(F.col("kind"), F.col("value"), F.col("reason")), F.lit(False))


_KEPT = "as_it_was"
_ORDER = ("seq", "snapshot", *RETRY_NAMES)
_AS_THEY_ARE = ("partition", "offset", "timestamp", "value", *_ORDER)


def decoded_again(rows: DataFrame, source: InputTopic) -> DataFrame:
    """Return rows of a history, decoded by the current decoder of its input.

    Place and order stay as they are, and so do rows that no decoding has made: those that closed a
    key, retries of an unknown origin, and records whose contact was erased.
    """
    history = source.tables.history
    made = [name for name in history.names if name not in _AS_THEY_ARE]
    former = F.struct(*made).alias(_KEPT)
    key = F.coalesce("raw_key", F.col("key").cast("binary")).alias("key")
    raw = rows.select(key, "headers", *_AS_THEY_ARE, former)
    again = decode(source, raw, (*_ORDER, _KEPT))
    kind = F.col(f"{_KEPT}.kind")
    is_rejected = kind == RecordKind.REJECTED.value
    without_origin = is_rejected & F.col("retry_offset").isNotNull() & F.col("seq").isNull()
    gone = is_erased(kind, F.col("value"), F.col(f"{_KEPT}.reason"))
    kept = F.coalesce((kind == RecordKind.RECONCILED.value) | without_origin | gone, F.lit(False))
    return again.select(
        *(
            F.when(kept, F.col(f"{_KEPT}.{name}")).otherwise(F.col(name)).alias(name)
            if name in made
            else F.col(name)
            for name in history.names
        )
    )


@dataclass(frozen=True)
class KafkaHistories:
    """What Kafka holds of the topics that a snapshot has read; `low` are the first offsets now."""

    kafka: Kafka
    pinned: Snapshot
    tables: TableWriter
    records_of: ReadRecords
    low: Watermarks

    def units(self, source: InputTopic) -> Iterator[Unit]:
        """Yield the work for the history of an input: its records, then the retries of them.

        Those that were erased are taken from the history in use, as it has them.
        """
        for ranges in self._slices(source.topic):
            name = f"{source.topic} up to {', '.join(str(range_.until) for range_ in ranges)}"
            yield Unit(name, total_size(ranges), partial(self._append, source, ranges))
        if self._may_be_erased(source.tables.history):
            yield Unit(f"erased records of {source.topic}", 0, partial(self._keep_erased, source))
        inputs = input_topics(self.kafka)
        there = [one for one in self.pinned.end_offsets if one not in inputs and one in self.low]
        retries = [ranges for topic in there for ranges in self._slices(topic)]
        yield Unit(f"retries of {source.topic}", 0, partial(self._correct, source, retries))

    def _append(self, source: InputTopic, ranges: Iterable[OffsetRange]) -> None:
        if there := self._held(ranges):
            append_originals(self._run(source, there), source, there)

    def _correct(self, source: InputTopic, slices: list[list[OffsetRange]]) -> None:
        if there := self._held(chain(*slices)):
            run = self._run(source, there)
            of_topics = read_corrections(run.records_of, there, input_topics(self.kafka))
            if corrections := of_topics.get(source.topic):
                append_corrections(run, source, corrections)

    def _may_be_erased(self, history: Table) -> bool:
        return bool(history.contacts) and self.pinned.erased_in is not None

    def _keep_erased(self, source: InputTopic) -> None:
        history = source.tables.history
        self.tables.append(history, self._in_use(history).where(_was_erased()))

    def _in_use(self, history: Table) -> DataFrame:
        located, version = self.pinned.located(history), self.pinned.tables[history.name]
        return delta_files.read(self.tables.spark, self.tables.where, located, version)

    def _read(self, source: InputTopic, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return records of one topic for the history of an input; none that was erased.

        Those that the history in use has come with the order that they have there. Computed again,
        with the partitions of now, an older record could rank above a newer one.
        """
        records = self.records_of(ranges)
        history, (topic,) = source.tables.history, {range_.topic for range_ in ranges}
        first, until = min(r.first for r in ranges), max(r.until for r in ranges)
        lowest = lowest_of(self.pinned.generations.get(source.name, 0))
        if topic == source.topic:
            in_use = self._in_use(history).where(F.col("offset").between(first, until))
            # Of a topic that was recreated, only the records of this generation.
            is_of_it = F.coalesce(F.col("seq") >= F.lit(lowest), F.lit(True))
            is_record = (F.col("kind") != RecordKind.RECONCILED.value) & is_of_it
            known = _known(in_use.where(F.col("retry_offset").isNull() & is_record), *_PLACE)
        else:
            of_topic = self._in_use(history).where(F.col("retry_topic") == topic)
            known = _known(of_topic, "retry_partition", "retry_offset")
        found = records.join(known, [*_PLACE], "left")
        if self._may_be_erased(history):
            found = found.where(~F.col("was_erased"))  # nor pruned: of these nothing is known
        if topic == source.topic and self.pinned.history_from is not None:
            # The order of a record that was pruned is unknown: it is below all that is known, as
            # what superseded it is.
            below = F.lit(lowest).cast("bigint") + F.col("offset")
            is_old = F.col("timestamp") < F.lit(self.pinned.history_from)
            pruned = F.when(F.col("key").isNotNull() & is_old, below)
            found = found.withColumn(KNOWN_SEQ, F.coalesce(KNOWN_SEQ, pruned))
        return found.drop("was_erased")

    def _held(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        lows = ((one, self.low[one.topic][one.partition][0]) for one in ranges)
        held = (replace(one, first=max(one.first, low)) for one, low in lows)
        return [range_ for range_ in held if range_.size > 0]

    def _run(self, source: InputTopic, ranges: list[OffsetRange]) -> CompactionRun:
        pinned = self.pinned
        unread = Unread(ranges, pinned.end_offsets, pinned.generations, {})
        return CompactionRun(
            self.tables,
            None,
            rule=pinned.rule,
            shards=pinned.shards,
            few=unread.size <= run_size.THRESHOLDS.few,
            kafka=self.kafka,
            partitions={topic: len(ends) for topic, ends in pinned.end_offsets.items()},
            unread=unread,
            records_of=partial(self._read, source),
        )

    def _slices(self, topic: str) -> list[list[OffsetRange]]:
        """Return all offsets of a topic in slices of all its partitions; always the same ones."""
        ends = sorted(self.pinned.end_offsets[topic].items())
        count = -(-sum(end for _, end in ends) // RECORDS_AT_ONCE)
        return [
            [OffsetRange(topic, one, end * n // count, end * (n + 1) // count) for one, end in ends]
            for n in range(count)
        ]


def held_now(kafka: Kafka, pinned: Snapshot) -> Watermarks:
    """Return the watermarks of the topics of a snapshot, without retry topics that are not there.

    ShardpostError if an input was replaced since it was read. Of a retry topic that was, nothing is
    there.
    """
    inputs = input_topics(kafka)
    retries = [topic for topic in pinned.end_offsets if topic not in inputs]
    counts = topic_metadata.partition_counts(kafka, inputs, if_there=retries)
    require_same(kafka, pinned, inputs, "Rebuild from the history: `--from history`")
    replaced = changed_topics(pinned.topic_ids, topic_ids(kafka, [*counts]))
    there = {topic: count for topic, count in counts.items() if topic not in replaced}
    return offsets.watermarks(kafka, there, committed=False)


def require_same(kafka: Kafka, pinned: Snapshot, topics: Collection[str], advice: str) -> None:
    """Raise RecreatedTopicError if one of the topics was replaced since the snapshot read it."""
    known = {topic: pinned.topic_ids[topic] for topic in topics if topic in pinned.topic_ids}
    require_same_topics(kafka, known, advice=advice)


def not_held(pinned: Snapshot, low: Watermarks) -> tuple[str, ...]:
    """Return, in words, what Kafka has deleted from the topics of a snapshot."""
    gone = []
    for topic, ends in pinned.end_offsets.items():
        if topic not in low:
            gone.append(f"topic {topic} no longer exists, or was replaced")
            continue
        firsts = {number: low[topic][number][0] for number in ends}
        gone += [f"{topic}[{n}]: offsets 0 to {first - 1}" for n, first in firsts.items() if first]
    return tuple(gone)
