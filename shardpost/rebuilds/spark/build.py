"""Building the tables of a rebuild at its pinned snapshot, in units; no compaction waits for it.

Histories are decoded again from those in use, or read from Kafka; then come the latest record of
each key, the holders and the counts.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import functions as F

from shardpost.delta import storage
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders.inputs import mappings_of
from shardpost.holders.model import view_tables as t
from shardpost.holders.model import who_holds
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.input_mapping import text_of
from shardpost.holders.model.record_order import newest_of_keys
from shardpost.holders.plausibility import count_unknown
from shardpost.holders.spark import fold
from shardpost.holders.spark.compaction_run import InputTopic, TableWriter, inputs_of
from shardpost.holders.spark.history import decoder_id, decoder_with, require_decodable
from shardpost.holders.spark.input_update import rejected_of
from shardpost.holders.spark.latest import highest_of_keys
from shardpost.installation import Installation
from shardpost.logs import step
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.rebuild import HISTORIES, Progress, Rebuild, Source, State
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
from shardpost.rebuilds.spark import histories
from shardpost.rebuilds.spark.top_up import standby_writer
from shardpost.spark import driver, kafka_source
from shardpost.spark.delta_files import paths, read_files

log = logging.getLogger(__name__)


# Of a history: what is neither a retry nor closed a key.
_OF_TOPIC = f"h.retry_offset IS NULL AND h.kind <> '{RecordKind.RECONCILED}'"


@dataclass(frozen=True)
class Build:
    """The work for the tables of a rebuild; `tables` writes them.

    `decoder` is the id of what decodes the records of `sources` now.
    """

    sources: Sequence[InputTopic]
    decoder: str
    rebuild: Rebuild
    pinned: Snapshot
    tables: TableWriter
    kafka: histories.KafkaHistories | None

    def units(self) -> Iterator[histories.Unit]:
        """Yield all units of work, including finished ones."""
        own, sources = self.rebuild.tables, self.sources
        require_decodable(self.tables.spark, sources)
        for source in sources:
            if source.tables.history.name in own:
                yield from self.kafka.units(source) if self.kafka else self._decoding(source)
        if t.REJECTED_RECORDS.name in own:
            for source in sources:
                work = partial(self._keep_rejected, source)
                yield histories.Unit(f"rejected records of {source.name}", 0, work)
        for source in sources:
            latest = source.tables.latest
            if latest.name in own:
                records = sum(count for _, count in self._groups(source))
                yield histories.Unit(latest.name, records, partial(self._latest, source))
        if t.SHARE_HOLDERS.name in own:
            yield histories.Unit(t.SHARE_HOLDERS.name, self.pinned.counts.positions, self._holders)

    def _groups(self, source: InputTopic) -> list[tuple[list[str], int]]:
        """Return (paths, records) of groups of the files of a history, always the same ones."""
        history, groups = source.tables.history, list[tuple[list[str], int]]()
        located, version = self.pinned.located(history), self.pinned.tables[history.name]
        rows_of = storage.rows(self.tables.where, located, version)
        for path, count in sorted(rows_of.items()):
            if not groups or groups[-1][1] >= histories.RECORDS_AT_ONCE:
                groups.append(([], 0))
            paths, records = groups[-1]
            groups[-1] = [*paths, path], records + count
        return groups

    def _decoding(self, source: InputTopic) -> Iterator[histories.Unit]:
        for number, (files, records) in enumerate(self._groups(source), 1):
            name = f"{source.tables.history.name} part {number}"
            yield histories.Unit(name, records, partial(self._decode, source, files))

    def _decode(self, source: InputTopic, files: list[str]) -> None:
        """Decode a part of a history again; what this very decoder has made is copied as it is."""
        history, located = source.tables.history, self.pinned.located(source.tables.history)
        if self.pinned.decoder == self.decoder:
            self.tables.copy(history, located, files)
        else:
            there = paths(self.tables.where, located, files)
            again = histories.decoded_again(read_files(self.tables.spark, history, there), source)
            self.tables.append(history, again, coalesce=False)

    def _keep_rejected(self, source: InputTopic) -> None:
        rejected = rejected_of(self.tables.read(source.tables.history), source.topic)
        self.tables.append(t.REJECTED_RECORDS, rejected)

    def _latest(self, source: InputTopic) -> None:
        history = source.tables.history
        newest = highest_of_keys(self.tables.read(history))
        # Records that are not of its own topic may share their place with others.
        sql = f"SELECT 1 FROM {history.name} h WHERE NOT ({_OF_TOPIC}) LIMIT 1"  # noqa: S608 - ours
        at = {self.tables.located(history): self.tables.versions[history.name]}
        was_recreated = self.pinned.generations.get(source.name, 0) > 0
        if source.mapping or was_recreated or rows(self.tables.where, sql, at):
            newest = self.tables.spark.sql(newest_of_keys(), records=newest.drop("is_open"))
        newest = newest.select(*source.tables.latest.names)
        self.tables.write_first(source.tables.latest, newest, coalesce=False)

    def _holders(self) -> None:
        for table in (t.POSITIONS, t.EXCHANGES):
            self.tables.read(table).createOrReplaceTempView(table.name)
        held = self.tables.spark.sql(who_holds.holders(self.rebuild.rule, None))
        holders = held.select("client", fold.sorted_ids(F.col("positions")).alias("positions"))
        rows_ = fold.as_holder_rows(self.tables, holders, self.pinned.shards)
        self.tables.write_first(t.SHARE_HOLDERS, rows_, coalesce=False)


def build(installation: Installation, rebuild: Rebuild, pinned: Snapshot) -> Rebuild:
    """Do the remaining work of a rebuild; return it, built."""
    return kafka_source.with_timestamp_fallback(
        partial(_build, installation, rebuild.number, pinned)
    )


def _build(
    installation: Installation, number: int, pinned: Snapshot, read_ranges: kafka_source.ReadRanges
) -> Rebuild:
    rebuild = registry.require_current(installation.tables, number)
    spark = driver.start_session(REBUILD_TABLES.name)
    own = rebuild.tables
    tables = standby_writer(spark, installation.tables, rebuild.candidate, pinned, own)
    kafka = None
    if rebuild.source is Source.KAFKA:
        low = histories.held_now(installation.kafka, pinned)
        rebuild = replace(rebuild, missing=histories.not_held(pinned, low))
        kafka = histories.KafkaHistories(
            installation.kafka, pinned, tables, partial(read_ranges, spark, installation.kafka), low
        )
    mappings = mappings_of(installation)
    sources, inputs = inputs_of(installation, mappings), text_of(mappings)
    decoder = decoder_id(inputs)
    units = [*Build(sources, decoder, rebuild, pinned, tables, kafka).units()]
    driver.divide_shuffles(spark, max((unit.records for unit in units), default=0))
    before = rebuild.progress
    if {*HISTORIES} <= {*own}:
        # Its histories are from now on made by this decoder; maybe not all by one.
        made_by = decoder_with(rebuild.candidate.decoder, inputs) if before.units else decoder
        candidate = replace(rebuild.candidate, decoder=made_by, inputs=inputs)
        rebuild = replace(rebuild, candidate=candidate)
    began = time.monotonic()
    for done_units, unit in enumerate(units, 1):
        if done_units <= before.units:
            continue
        step(f"rebuild {unit.name}")
        unit.work()
        seconds = before.seconds + time.monotonic() - began
        records = sum(done.records for done in units[:done_units])
        done = Progress(done_units, records, sum(each.records for each in units), seconds)
        step(f"rebuilt {unit.name}")
        candidate = replace(rebuild.candidate, tables=dict(tables.versions), folded=tables.folded)
        rebuild = registry.update(
            installation.tables, replace(rebuild, candidate=candidate, progress=done)
        )
        log.info("rebuild %d: %s: %s", rebuild.number, unit.name, done.summary())
    candidate = replace(rebuild.candidate, counts=counted(installation.tables, rebuild.candidate))
    if kafka:
        advice = (
            "This happened while the tables were built from it: drop them with `shardpost rebuild"
            " drop`, and rebuild from the history: `--from history`"
        )
        histories.require_same(installation.kafka, pinned, kafka.low, advice)
        gone = (*rebuild.missing, *_superseded(installation, rebuild, pinned))
        rebuild = replace(rebuild, missing=gone)
        if gone:
            # Kafka was read until then: what was superseded before may be among it, also by
            # records that this snapshot has not.
            candidate = replace(candidate, history_from=rebuild.changed_at)
    step("built")
    return registry.update(
        installation.tables, replace(rebuild, candidate=candidate, state=State.BUILT)
    )


def _superseded(installation: Installation, rebuild: Rebuild, pinned: Snapshot) -> Iterator[str]:
    """Yield, in words, of which topics the histories in use have more records than Kafka has."""
    for name, tables in t.INPUTS.items():
        history = tables.history
        if history.name in rebuild.tables:
            select = f"count(*) AS n FROM {history.name} h WHERE {_OF_TOPIC}"
            views = (rebuild.candidate, pinned)
            held, known = (_row(installation.tables, view, history, select)[0] for view in views)
            if held < known:
                topic = installation.kafka.topic(name)
                yield f"topic {topic}: {known - held:,} of {known:,} records read"


def counted(tables: storage.Tables, view: Snapshot) -> Counts:
    """Return the counts of a view, from its tables."""
    [open_] = _row(tables, view, t.POSITIONS, "count(*) AS n FROM positions WHERE is_open")
    select = "count(*) AS n, sum(cardinality(positions)) AS held"
    select += " FROM share_holders WHERE cardinality(positions) > 0"
    holders, held = _row(tables, view, t.SHARE_HOLDERS, select)
    [rejected] = _row(tables, view, t.REJECTED_RECORDS, "count(*) AS n FROM rejected_records")
    unknown = count_unknown(tables, at_snapshot(view, t.POSITIONS, t.EXCHANGES))
    return Counts(open_, holders, held, rejected, unknown)


def _row(tables: storage.Tables, view: Snapshot, table: Table, select: str) -> list[int]:
    [row] = rows(tables, f"SELECT {select}", at_snapshot(view, table))
    return [int(value or 0) for value in row.values()]
