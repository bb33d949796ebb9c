"""Histories of a rebuild that are read from Kafka, up to the ends of its pinned snapshot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.inputs import input_topics
from shardpost.holders.model.unread import Unread
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic
from shardpost.holders.spark.history import append_corrections, append_originals, read_corrections
from shardpost.holders.spark.table_writer import TableWriter
from shardpost.kafka import offsets
from shardpost.kafka.offset_ranges import OffsetRange, Watermarks, total_size
from shardpost.kafka.topic_ids import require_same_topics, topic_ids
from shardpost.rebuilds.spark.erased_records import (
    erased_rows,
    known_originals,
    known_retries,
    known_rows,
)
from shardpost.rebuilds.spark.units import RECORDS_AT_ONCE, Unit
from shardpost.settings import Settings
from shardpost.spark.kafka_source import ReadRanges


@dataclass(frozen=True)
class KafkaHistories:
    """What Kafka holds of the topics that a snapshot has read; `low` are the first offsets now."""

    settings: Settings
    pinned: Snapshot
    tables: TableWriter
    read_ranges: ReadRanges
    low: Watermarks

    def units(self, source: InputTopic) -> Iterator[Unit]:
        """Yield the work for the history of an input: its records, then the retries of them.

        Those that were erased are taken from the history in use, as it has them.
        """
        for ranges in self._slices(source.topic):
            name = f"{source.topic} up to {', '.join(str(one.until) for one in ranges)}"
            yield Unit(name, total_size(ranges), partial(self._append, source, ranges))
        if self._may_be_erased(source.tables.history):
            yield Unit(f"erased records of {source.topic}", 0, partial(self._keep_erased, source))
        retries = [one for topic in self._retry_topics() for one in self._slices(topic)]
        yield Unit(f"retries of {source.topic}", 0, partial(self._correct, source, retries))

    def _append(self, source: InputTopic, ranges: list[OffsetRange]) -> None:
        if there := self._held(ranges):
            append_originals(self._run(source, there), source, there)

    def _correct(self, source: InputTopic, slices: list[list[OffsetRange]]) -> None:
        if there := self._held([one for ranges in slices for one in ranges]):
            run = self._run(source, there)
            topics = [one.topic for one in run.inputs]
            found = read_corrections(run.records_of, there, topics).get(source.topic)
            if found:
                append_corrections(run, source, found)

    def _may_be_erased(self, history: Table) -> bool:
        return bool(history.contacts) and self.pinned.erased_in is not None

    def _keep_erased(self, source: InputTopic) -> None:
        history = source.tables.history
        self.tables.append(history, self._erased(history))

    def _erased(self, history: Table) -> DataFrame:
        return erased_rows(self.tables.spark, self.settings, self.pinned, history)

    def _read(
        self,
        source: InputTopic,
        spark: SparkSession,
        settings: Settings,
        ranges: Sequence[OffsetRange],
        *more: str,
    ) -> DataFrame:
        """Return records of one topic for the history of an input; none that was erased."""
        found = self.read_ranges(spark, settings, ranges, *more)
        history = source.tables.history
        if not self._may_be_erased(history):
            return found
        (topic,) = {one.topic for one in ranges}
        known = known_rows(spark, settings, self.pinned, history)
        if topic == source.topic:
            return known_originals(found, known)
        return known_retries(found, known, topic)

    def _held(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return what Kafka still has of ranges."""
        lows = (self.low[one.topic][one.partition][0] for one in ranges)
        held = (
            replace(one, first=max(one.first, low)) for one, low in zip(ranges, lows, strict=True)
        )
        return [one for one in held if one.size > 0]

    def _run(self, source: InputTopic, ranges: list[OffsetRange]) -> CompactionRun:
        pinned = self.pinned
        unread = Unread(ranges, pinned.end_offsets, pinned.topic_ids, pinned.generations, {})
        counts = {topic: len(ends) for topic, ends in pinned.end_offsets.items()}
        read = partial(self._read, source)
        return CompactionRun(self.settings, self.tables, None, counts, unread, read)

    def _retry_topics(self) -> list[str]:
        others = {*input_topics(self.settings)}
        return [one for one in self.pinned.end_offsets if one not in others and one in self.low]

    def _slices(self, topic: str) -> list[list[OffsetRange]]:
        """Return all offsets of a topic in slices of all its partitions; always the same ones."""
        ends = sorted(self.pinned.end_offsets[topic].items())
        count = -(-sum(end for _, end in ends) // RECORDS_AT_ONCE)
        return [
            [
                OffsetRange(topic, number, end * n // count, end * (n + 1) // count)
                for number, end in ends
            ]
            for n in range(count)
        ]


def held_now(settings: Settings, pinned: Snapshot) -> Watermarks:
    """Return the watermarks of the topics of a snapshot.

    ShardpostError if an input is another topic than the one that was read.
    """
    inputs = input_topics(settings)
    known = {topic: pinned.topic_ids[topic] for topic in inputs if topic in pinned.topic_ids}
    advice = "Rebuild from the history: `--from history`"
    require_same_topics(known, topic_ids(settings, [*known]), advice=advice)
    retries = [topic for topic in pinned.end_offsets if topic not in inputs]
    counts = offsets.partition_counts(settings, inputs, if_there=retries)
    return offsets.watermarks(settings, counts, committed=False)


def not_held(settings: Settings, pinned: Snapshot, low: Watermarks) -> tuple[str, ...]:
    """Return, in words, what the topics of a snapshot held, and hold no more."""
    found = []
    for topic, ends in pinned.end_offsets.items():
        if topic not in low:
            found.append(f"topic {topic} is not there any more")
            continue
        gone = {number: low[topic][number][0] for number in ends if low[topic][number][0] > 0}
        found += [f"{topic}[{number}]: offsets 0 to {first - 1}" for number, first in gone.items()]
    return tuple(found)
