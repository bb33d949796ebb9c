"""A look at the inputs: what it found, and the run that ends there since nothing is new.

What a compaction says where Kafka is gone before its commit.

What a person should know of a look at the inputs: in the log, the result and the exit code.

A compaction that finds nothing new: no new snapshot, and no Spark.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from shardpost import locks
from shardpost.delta import snapshots
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.holders import inputs
from shardpost.holders.model.published import RunCounts
from shardpost.holders.model.unread import Look, Unread
from shardpost.holders.results import publish_results
from shardpost.kafka.clients import KafkaUnreachableError, require_listening
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult


@contextmanager
def explain_outage(settings: Settings) -> Iterator[None]:
    """Say that of an error of a Kafka that is gone: after the commit it is another error.

    Spark's own errors are of a timeout; then it is asked whether Kafka is there.
    """
    try:
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                require_listening(settings)
            raise
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(f"nothing was changed: {error}; then run it again") from None


log = logging.getLogger(__name__)


def report_look(look: Look, unread: Unread) -> None:
    """Warn of open transactions, of retry topics that are gone, and of a clock that was ahead."""
    if look.ahead is not None:
        log.warning(
            "the last snapshot says that the inputs were looked at at %s UTC, and now it is %s UTC"
            " by this machine's clock: a compaction ran by a clock that was ahead, or this one is"
            " behind. When they were last looked at counts as unknown; if this clock is wrong,"
            " correct it, and compact again",
            *(f"{at:%Y-%m-%d %H:%M}" for at in (look.ahead, look.at)),
        )
    for topic in sorted(unread.gone):
        log.warning(
            "retry topic %s was read before and is not there any more: corrections in it that were"
            " not read have no effect",
            topic,
        )
    for transaction in unread.open_transactions:
        log.warning(
            "%s: an open transaction: nothing behind it can be read, and looked_at stays behind"
            " until it ends (docs/compaction.md, An open transaction)",
            transaction,
        )


def with_attention(result: JobResult, unread: Unread) -> JobResult:
    """Return a result with the open transactions, and NEEDS_ATTENTION if somebody should know.

    So it is if there are any, or keys of which good records may be lost.
    """
    code, document = result
    found = [one.as_json() for one in unread.open_transactions]
    needs_attention = found or document["uncertain"]
    code = NEEDS_ATTENTION if needs_attention and code == DONE else code
    return code, document | {"open_transactions": found}


def result_if_nothing_new(settings: Settings, lock: str) -> JobResult | None:
    """Do, and return, all that a compaction does that has nothing to read; None if it has.

    Under the compaction's lock, after any that is running: `lock_wait` at most.
    """
    locked = locks.exclusive(settings, lock, lock, wait=settings.lock_wait)
    with locked, explain_outage(settings):
        last = snapshots.newest(settings)
        if last is None or inputs.unread_originals(settings, last):
            return None  # the job itself looks at all: twice would be once too often
        look, unread = inputs.look(settings)
        return (
            keep_snapshot(settings, look, unread)
            if is_nothing_new(settings, look, unread)
            else None
        )


def is_nothing_new(settings: Settings, look: Look, unread: Unread) -> bool:
    """Tell whether the last snapshot is what this look would make."""
    if look.last is None or unread.ranges or unread.reconciliation:
        return False
    return look.last.country == look.last.country_now(settings.country)


def keep_snapshot(settings: Settings, look: Look, unread: Unread) -> JobResult:
    """Note when the inputs were found to hold no more, and pass on what is left to pass on."""
    assert look.last is not None  # noqa: S101 - by is_nothing_new
    report_look(look, unread)
    looked_at, incomplete = look.times(unread)
    latest = look.last.with_looked_at(looked_at, unread.topic_ids, incomplete)
    latest = latest.without_topics(unread.gone)
    snapshots.update_looked_at(settings, latest)
    log.info("snapshot %d has all that can be read", latest.number)
    result = publish_results(settings, latest, unread, RunCounts(), changed=False)
    return with_attention(result, unread)
