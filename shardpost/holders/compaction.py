"""One compaction: what it asks before it, and what it does after a snapshot was made. No Spark.

Before it: whether this installation may begin, what is unread, whether its rule of who holds is in
force. Then a snapshot is built, checked and committed; or, with nothing new, the last one is kept.
After it: publish the changes, send letters, count, fold. What is left of these a later run does.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, combined
from shardpost.holders import plausibility, publishing, rejected_letters
from shardpost.holders.folding import Folding
from shardpost.holders.inputs import Inputs, mappings_of
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.input_mapping import Mappings, text_of
from shardpost.holders.model.published import RunCounts
from shardpost.holders.model.topic_state import TopicState, Unread
from shardpost.installation import Installation
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError
from shardpost.kafka.topic_metadata import require_same_topics
from shardpost.logs import step
from shardpost.spark.job import JobResult
from shardpost.topics import guards
from shardpost.values.holding_rule import Rule

log = logging.getLogger(__name__)

COMPACTION_GROUP = "shardpost-compaction"
RECREATED = (
    "This happened while the topic was read: nothing was changed. Run `shardpost compact` again"
)


# Makes a snapshot by a rule and mappings, not committed yet, and says what it counted.
Build = Callable[[TopicState, Unread, Rule, Mappings], tuple[Snapshot, RunCounts]]


def compact(
    installation: Installation, asked: CompactionRequest, build: Build | None = None
) -> JobResult | None:
    """Compact, behind the guards of the compaction.

    Without `build`, None if a job is needed: for what is new, or to fold much. NEEDS_ATTENTION as
    `publish_results` says. An error says how far the run came: nothing was changed, or the snapshot
    is committed and what is left to do.
    """
    tables, setting = installation.tables, installation.settings.rule
    with _outage_explained(installation.kafka):
        inputs, mappings = Inputs(installation), mappings_of(installation)
        if build is None and inputs.has_new_originals():
            return None  # the job itself looks at all: twice would be once too often
        state, unread = inputs.state(reconcile=asked.reconcile)
        last, rule = state.last, state.rule(setting, changed=asked.country_changed)
        if build and last and not asked.country_changed:
            plausibility.require_rule(tables, last, setting)
        if last and not asked.inputs_changed:
            plausibility.require_inputs(mappings, last)
        is_new = unread.ranges or unread.reconciliation
        if last and not is_new and (last.rule, last.inputs) == (rule, text_of(mappings)):
            if build is None and Folding(tables, last).needs_spark:
                return None
            report_state(state, unread)
            latest, done = state.noted(last, unread, setting), None
            snapshots.update_looked_at(tables, latest)
            log.info("snapshot %d has all that can be read", latest.number)
        elif build is None:
            return None
        else:
            report_state(state, unread)
            step("read")
            latest, done = build(state, unread, rule, mappings)
            plausibility.require_plausible(installation, last, latest, asked)
            # Asked again just before the commit: what was read is of the topics that are noted.
            require_same_topics(installation.kafka, state.ids, advice=RECREATED)
            step("commit")
            snapshots.commit(tables, latest)
            counts = latest.counts.summary(), done.summary()
            log.info("snapshot %d: %s; by this run: %s", latest.number, *counts)
    result = publish_results(installation, latest, unread, done, take_over=asked.take_over)
    age, at_once = installation.settings.fold_age, asked.follow is None
    Folding(tables, latest).fold_if_due(datetime.now(UTC), age, at_once=at_once)
    return result


def publish_results(
    installation: Installation,
    latest: Snapshot,
    unread: Unread,
    done: RunCounts | None,
    *,
    take_over: bool,
) -> JobResult:
    """Publish what no earlier run has, and send its letters; return the compaction's result.

    `done` is what it has changed, if anything; what fails here is left to do.
    NEEDS_ATTENTION if a list was too large to be published, if share-holders is not compacted only,
    if open transactions hide records, and if a reconciliation left keys as they are of which good
    records may be lost.
    """
    try:
        guards.take_topics(installation, take_over=take_over)
    except ShardpostError as error:
        left = f"publishing to {installation.kafka.topic('share-holders')}, and letters"
        raise _left_to_do(latest, {left: error}) from error
    step("offsets")
    try:
        offsets.commit_offsets(installation.kafka, COMPACTION_GROUP, unread.ends)
    except ShardpostError as error:  # only tools that show lag are wrong then
        log.warning("the offsets of group %s were not committed: %s", COMPACTION_GROUP, error)
    code, published = publish_and_send(installation, latest)
    transactions = [transaction.as_json() for transaction in unread.open_transactions]
    counts = done or RunCounts()
    needs_attention = transactions or counts.uncertain
    made = {"snapshot": latest.as_json(), **published, "changed": done is not None}
    made["unknown_exchanges"] = latest.counts.unknown.named
    return (
        NEEDS_ATTENTION if needs_attention and code == DONE else code,
        {**made, **asdict(counts), "open_transactions": transactions},
    )


def publish_and_send(
    installation: Installation, latest: Snapshot, *, mark: bool = False
) -> tuple[int, dict[str, Any]]:
    """Publish, and send letters, each even if the other fails; raise what failed.

    Return the exit code, NEEDS_ATTENTION as `publish_results` says, and the counts as JSON. With
    `mark`, both are recorded to be at this snapshot even if there was nothing to do.
    """
    published, letters = publishing.Publication(), 0
    failures: dict[str, Exception] = {}
    step("publish")
    try:
        published = publishing.publish(installation, latest, mark=mark)
    except Exception as error:
        failures[f"publishing to {installation.kafka.topic('share-holders')}"] = error
    step("letters")
    try:
        if latest.counts.rejected:
            letters = rejected_letters.send(installation, latest, mark=mark)
    except Exception as error:
        topic = installation.kafka.topic("dead-letters")
        failures[f"the letters of rejected records to {topic}"] = error
    if failures:
        raise _left_to_do(latest, failures)
    is_well = published.is_compacted and not published.too_large
    return DONE if is_well else NEEDS_ATTENTION, {
        "published": published.records,
        "too_large": published.too_large,
        "share_holders_compacted": published.is_compacted,
        "letters": letters,
    }


def _left_to_do(latest: Snapshot, failures: Mapping[str, Exception]) -> ShardpostError:
    """Return what is committed, what is not done, why, and what to do."""
    for left, error in failures.items():
        if not isinstance(error, ShardpostError):
            log.error("%s", left, exc_info=error)
    return ShardpostError(
        f"snapshot {latest.number} is committed and the tables are complete; still to do:"
        f" {' and '.join(failures)}. {combined([*failures.values()])}. Run `shardpost compact`"
        " again to finish it"
    )


@contextmanager
def _outage_explained(kafka: Kafka) -> Iterator[None]:
    """Say that nothing was changed if Kafka is unreachable: around all up to the commit.

    Spark itself reports a timeout; then Kafka's addresses are tried.
    """
    try:
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                kafka.require_listening()
            raise
    except KafkaUnreachableError as error:
        raise guards.nothing_changed(error) from None


def report_state(state: TopicState, unread: Unread) -> None:
    """Warn of open transactions, of retry topics that no longer exist, and of a clock ahead."""
    if state.ahead is not None:
        log.warning(
            "the last snapshot read the inputs at %s UTC, but this machine's clock says %s UTC:"
            " the clock of a compaction was ahead, or this clock is behind. The time of the last"
            " read counts as unknown; if this clock is wrong, correct it and compact again",
            *(f"{at:%Y-%m-%d %H:%M}" for at in (state.ahead, state.at)),
        )
    for topic in sorted(unread.gone):
        log.warning(
            "retry topic %s was read before and no longer exists: unread corrections in it have"
            " no effect",
            topic,
        )
    for transaction in unread.open_transactions:
        log.warning(
            "%s: an open transaction: records after it cannot be read, and looked_at does not"
            " advance until it ends (docs/compaction.md, An open transaction)",
            transaction,
        )
