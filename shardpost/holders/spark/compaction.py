"""One compaction, as spark_jobs/compact_positions.py and holders/compaction.py say, with Spark.

Each input, side by side: read it, decode, append to its history, latest per key, what that changes;
then the holders, by what changed of the positions; then the counts.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from shardpost import __version__
from shardpost.delta.snapshot import NEVER, Scattered, Snapshot
from shardpost.errors import shown
from shardpost.holders import compaction
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.folding import restored_tables
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.input_mapping import Mappings, text_of
from shardpost.holders.model.lost_records import require_certain
from shardpost.holders.model.published import RunCounts
from shardpost.holders.model.topic_state import TopicState, Unread
from shardpost.holders.spark import input_update
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic, TableWriter, inputs_of
from shardpost.holders.spark.corrections import read_corrections
from shardpost.holders.spark.fold import update_holders
from shardpost.holders.spark.history import decoder_id, decoder_with, require_decodable
from shardpost.holders.spark.latest import close_superseded
from shardpost.installation import Installation
from shardpost.spark import driver, kafka_source, run_size
from shardpost.spark.job import JobResult
from shardpost.topics import guards
from shardpost.values.holding_rule import Rule

log = logging.getLogger(__name__)


def build_snapshot(
    installation: Installation, state: TopicState, unread: Unread, rule: Rule, mappings: Mappings
) -> tuple[Snapshot, RunCounts]:
    """Write all tables up to the ends of what is unread; return the snapshot, not committed yet.

    TombstonesLostError if records may have been missed that are gone; then nothing was written, or
    what was is undone by the next run.
    """
    kafka = installation.kafka
    few = kafka_source.FewRecords.read(kafka, unread.ranges)

    def build(read_ranges: kafka_source.ReadRanges) -> tuple[Snapshot, RunCounts]:
        read_ranges = partial(few.or_else, read_ranges) if few else read_ranges
        spark = driver.start_session(COMPACT_POSITIONS.name)
        records_of = partial(read_ranges, spark, kafka)
        tables, last = installation.tables, state.last
        if last:
            may_have_lost = unread.may_have_lost(last, state.at)
            counted = {one: records_of(unread.of_topic(one)).count() for one in may_have_lost}
            unread.require_tombstones_kept(counted, last, state.at)
        run = CompactionRun(
            TableWriter(spark, tables, restored_tables(tables, last), last),
            last,
            rule=rule,
            shards=state.counts[kafka.topic("share-holders")],
            few=unread.size <= run_size.THRESHOLDS.few,
            kafka=kafka,
            partitions=state.counts,
            unread=unread,
            records_of=records_of,
            in_memory=few is not None,
        )
        sources, inputs = inputs_of(installation, mappings), text_of(mappings)
        if last is None or last.inputs != inputs:
            require_decodable(spark, sources)
        snapshot, done = _build(run, sources)
        decoder = decoder_with(last.decoder, inputs) if last else decoder_id(inputs)
        snapshot = replace(snapshot, inputs=inputs, decoder=decoder)
        return state.noted(snapshot, unread, installation.settings.rule), done

    return kafka_source.with_timestamp_fallback(build)


def _build(run: CompactionRun, sources: Sequence[InputTopic]) -> tuple[Snapshot, RunCounts]:
    unread, last = run.unread, run.last
    driver.plan_for(run.spark, unread.size)
    updates, retries = _update_topics(run, sources)
    read_at = datetime.now(UTC)  # not state.at: Kafka's compaction went on while topics were read
    if last:
        read = {update.source.topic: update.read for update in updates}
        unread.require_tombstones_kept(read, last, read_at)
    done = RunCounts(
        rejected=sum(update.rejected for update in updates),
        retries=retries,
        applied=sum(update.changes.retries for update in updates if update.changes),
        without_effect=sum(update.without_effect for update in updates),
        reconciled=sum(update.reconciled for update in updates),
        skipped=sum(update.skipped for update in updates),
        **_uncertain(run, updates, read_at),
    )
    for update in updates:
        input_update.keep_rejected(run, update)
    changes = (update.changes for update in updates if update.source.name == "positions")
    positions = next(changes, None)
    changed = (positions.rows, positions.opened) if positions else (None, 0)
    counts = update_holders(run, *changed)
    snapshot = Snapshot(
        number=run.number,
        committed_at=datetime.now(UTC),
        looked_at=NEVER,
        end_offsets={},
        rule=run.rule,
        tables=dict(run.tables.versions),
        counts=replace(counts, rejected=counts.rejected + done.rejected),
        code_version=__version__,
        run=run.tables.run,
        shards=run.shards,
        folded=run.tables.folded,
        erased_in=last.erased_in if last else None,
        history_from=last.history_from if last else None,
        folders=run.tables.folders,
        rebuilt_in=last.rebuilt_in if last else None,
        scattered=_scattered(run, updates, read_at),
    )
    return snapshot, done


# So many keys with records in several partitions are kept by name.
MOST_SCATTERED = 5


def _scattered(
    run: CompactionRun, updates: Sequence[input_update.InputUpdate], read_at: datetime
) -> dict[str, Scattered]:
    known = dict(run.last.scattered) if run.last else {}
    for update in updates:
        if (found := update.scattered).count:
            names = () if update.source.tables.history.contacts else found.keys
            some = tuple(names[:MOST_SCATTERED])
            known[update.source.topic] = Scattered(run.number, read_at, found.count, some)
    return known


def _update_topics(
    run: CompactionRun, sources: Sequence[InputTopic]
) -> tuple[list[input_update.InputUpdate], int]:
    """Update the tables of all inputs; return what was done, and how many retries there were."""
    topics = [source.topic for source in sources]
    of_retries = [range_ for range_ in run.unread.ranges if range_.topic not in topics]
    retries = read_corrections(run.records_of, of_retries, topics) if of_retries else {}

    def update(source: InputTopic) -> input_update.InputUpdate:
        done = input_update.update_topic(run, source, retries.get(source.topic))
        if run.unread.reconciliation is None:
            return done
        changes, count = close_superseded(run, source, done.changes)
        return replace(done, changes=changes, reconciled=count)

    with ThreadPoolExecutor(len(topics)) as pool:  # of a few records, planning takes longest
        updates = [*pool.map(update, sources)]
        return updates, sum(one.count for one in retries.values())


def _uncertain(
    run: CompactionRun, updates: Sequence[input_update.InputUpdate], read_at: datetime
) -> dict[str, Any]:
    """Return what RunCounts has of keys whose good records may be lost.

    UncertainKeysError if there are any, and the run is not to reconcile.
    """
    if (last := run.last) is None:
        return {}
    uncertain = {
        update.source.topic: input_update.uncertain_keys(run, update, last, read_at)
        for update in updates
    }
    if run.unread.reconciliation is None:
        require_certain(uncertain, last, read_at)
    uncertain = {topic: keys for topic, keys in uncertain.items() if keys.count}
    for topic, keys in uncertain.items():
        for key in keys.keys:
            text = "%s: key %s is left unchanged: good records of it may be lost"
            log.warning(text, topic, shown(key))
        log.warning(
            "%s: %d keys may have lost good records that were followed by undecodable ones; write"
            " new records for keys that are wrong",
            *(topic, keys.count),
        )
    named = {topic: list(keys.keys) for topic, keys in uncertain.items()}
    return {"uncertain": sum(keys.count for keys in uncertain.values()), "uncertain_keys": named}


def compact(
    installation: Installation,
    asked: CompactionRequest | None = None,
    *,
    now_in_force: Callable[[Installation, CompactionRequest], Installation] = lambda own, _: own,
) -> JobResult:
    """Run one compaction under its lock, after any that is running: `lock_wait` at most.

    As holders/compaction.py says. `now_in_force` returns the installation by what holds in the
    tables that are committed: it is asked behind the lock, since tables may be swapped while this
    run waits.
    """
    asked = asked or CompactionRequest()
    with (
        guards.run(installation, COMPACT_POSITIONS.name, asks_owner=not asked.take_over),
        installation.tables.opened_once(),
    ):
        installation = now_in_force(installation, asked)
        result = compaction.compact(installation, asked, partial(build_snapshot, installation))
    assert result is not None  # noqa: S101 - what is new was built
    return result
