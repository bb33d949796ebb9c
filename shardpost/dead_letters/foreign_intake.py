"""Intake of the dead letters of other frameworks: each record once, by its offset.

One transaction holds the letters and the offsets up to which they were taken, in the group
`shardpost-intake`, with the id of the topic as metadata. A producer for each partition fences older
ones before the offset is read.

A foreign topic may be missing until its first failure, be truncated by its retention, or be deleted
and recreated. None of that stops a sweep; what is missing is reported as a gap.

An error after the intake names its gaps and the parked letters: these are committed, and no later
sweep reports them again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from shardpost.dead_letters import sweep_job
from shardpost.dead_letters.letter_topics import writer_of
from shardpost.dead_letters.model.foreign_letters import KnownTopics, from_foreign
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.installation import Installation
from shardpost.kafka import offsets, reading
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.reading import record_of
from shardpost.kafka.records import Outgoing, TopicPartition, batches, size_of
from shardpost.kafka.topic_metadata import partition_leaders, topic_ids
from shardpost.kafka.transactions import Consumed, TooLargeError, Transactions
from shardpost.values.retry_settings import split_names

log = logging.getLogger(__name__)

GROUP = "shardpost-intake"
# The most lines about what needs a person in one error; the log has all.
MOST_NAMED = 20


class LostLettersError(ShardpostError):
    """A sweep failed after it found letters deleted unread, which nothing else shows later.

    With exit code 3, Airflow alerts before it retries the sweep; the next sweep continues.
    """

    exit_code = NEEDS_ATTENTION


@contextmanager
def naming(result: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Add to an error what needs a person in the result so far, gaps first."""
    try:
        yield
    except Exception as error:
        so_far = result()
        lines = sorted(
            sweep_job.for_a_person(so_far), key=lambda line: line.endswith(sweep_job.SEE_PARKED)
        )
        if not lines:
            raise
        more = len(lines) - MOST_NAMED
        named = [*lines[:MOST_NAMED], *([f"and {more} more: see its log"] if more > 0 else [])]
        kind = LostLettersError if so_far["gaps"] else ShardpostError
        said = str(error)
        if not isinstance(error, ShardpostError):
            log.exception("the sweep failed")
            said = f"{type(error).__name__}: {next(iter(said.splitlines()), '')}"
        raise kind("; ".join([said, *named])) from error


@dataclass
class _Run:
    """One intake, and its result so far."""

    installation: Installation
    routes: Routes
    now: datetime
    intake: sweep_job.Intake = field(default_factory=sweep_job.Intake)

    @cached_property
    def known(self) -> KnownTopics:
        """The retry rules and the foreign topics of the settings."""
        foreign = split_names(self.installation.settings.foreign_dead_letters or "")
        return KnownTopics(self.installation.settings.retry_rules, foreign)

    def lost(self, gap: sweep_job.Gap) -> None:
        """Report a gap."""
        log.warning("%s", gap)
        self.intake.gaps += (gap,)

    def skip(self, source: TopicPartition, reason: object) -> None:
        """Report a partition that cannot be read now."""
        log.warning("%s: not taken in: %s", source, reason)
        self.intake.not_read += (f"{source}: {reason}",)


def take_in(installation: Installation, routes: Routes, now: datetime) -> sweep_job.Intake:
    """Put all new foreign dead letters into the store."""
    run = _Run(installation, routes, now)
    foreign = run.known.foreign
    if not foreign:
        return run.intake
    with naming(lambda: sweep_job.as_json(Counter(), Counter(), run.intake)):
        leaders = partition_leaders(installation.kafka, foreign)
        for topic in sorted(foreign):
            if topic not in leaders:
                log.info("%s: the topic does not exist (yet): nothing is taken in from it", topic)
            for number, has_leader in leaders.get(topic, {}).items():
                source = TopicPartition(topic, number)
                if not has_leader:
                    run.skip(source, "it has no leader")
                    continue
                try:
                    _take_in_partition(run, source)
                except KafkaUnreachableError as error:
                    run.skip(source, error)
    return run.intake


def _take_in_partition(run: _Run, source: TopicPartition) -> None:
    installation, store = run.installation, run.routes.store
    count = run.routes.partitions[store]
    if offsets.watermark_of(installation.kafka, source, committed=True)[1] == 0:
        return  # nothing was ever written to it
    topic_id = topic_ids(installation.kafka, [source.topic]).get(source.topic)
    writer = writer_of(
        installation,
        "intake",
        source,
        fenced=f"fenced: a newer sweep takes in {source}; this sweep stops",
        failed=f"{source}: cannot take in its letters ({{reason}}): sweep again when Kafka is"
        " available",
    )
    with closing(writer), closing(installation.kafka.consumer(GROUP)) as reader:
        writer.open()
        # No other writer changes it: older ones are fenced.
        committed = offsets.committed_offsets(installation.kafka, reader, [source]).get(source)
        # Read after the taken offsets, which can never be beyond the end.
        marks = offsets.watermark_of(installation.kafka, source, committed=True)
        start, gaps = sweep_job.next_offset(source, committed, topic_id, marks)
        for gap in gaps:
            run.lost(gap)
        before, until = run.intake.taken_in, None
        messages = reading.read_to_end(installation.kafka, source, start=start, committed=True)
        for batch in batches(map(record_of, messages), installation.settings.retry_batch, size_of):
            ends = [Consumed(reader, source, record.offset + 1, topic_id) for record in batch]
            letters = [from_foreign(one, run.now, store, count, run.known) for one in batch]
            _write(run, writer, letters, ends)
            until = ends[-1].offset
        if until is None or until < marks[1]:
            # Kafka expires offsets that are not committed again. Transaction markers may follow the
            # last record: their deletion would look like a gap.
            writer.write([], Consumed(reader, source, marks[1], topic_id))
    if taken := run.intake.taken_in - before:
        log.info("%s: %d letters taken in", source, taken)


def _write(run: _Run, writer: Transactions, letters: list[Outgoing], ends: list[Consumed]) -> None:
    """Write letters with their offsets; report those that are too large as gaps."""
    try:
        writer.write(letters, ends[-1])
    except TooLargeError:
        if len(letters) > 1:
            for letter, end in zip(letters, ends, strict=True):
                _write(run, writer, [letter], [end])
            return
        offset = ends[-1].offset - 1
        writer.write([], ends[-1])
        run.lost(sweep_job.Gap(ends[-1].partition, offset, offset, sweep_job.TOO_LARGE))
    else:
        run.intake.taken_in += len(letters)
