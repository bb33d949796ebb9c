"""What a compaction does after its snapshot: publish the changes, send letters, count."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from shardpost.delta.snapshot import Snapshot
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, combined
from shardpost.holders import publishing, rejected_letters
from shardpost.holders.model.published import RunCounts
from shardpost.holders.model.unread import Unread
from shardpost.holders.publishing import Publication
from shardpost.kafka import offsets
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-compaction"


def publish_results(
    settings: Settings, latest: Snapshot, unread: Unread, done: RunCounts, *, changed: bool
) -> JobResult:
    """Publish what no earlier run has, and send its letters; return the compaction's result.

    NEEDS_ATTENTION if a list was too large to be published, or share-holders is not compacted only.
    """
    step("offsets")
    _commit_offsets(settings, unread)
    code, passed_on = publish_and_send(settings, latest)
    document = {"snapshot": latest.as_json(), **passed_on, "changed": changed, **asdict(done)}
    return code, document


def _commit_offsets(settings: Settings, unread: Unread) -> None:
    """Commit how far the topics were read; without that, only tools that show lag are wrong."""
    try:
        offsets.commit_offsets(settings, GROUP, unread.ends)
    except ShardpostError as error:
        log.warning("the offsets of group %s were not committed: %s", GROUP, error)


def publish_and_send(
    settings: Settings, latest: Snapshot, *, mark: bool = False
) -> tuple[int, dict[str, Any]]:
    """Publish, and send letters, each also where the other fails; raise what failed.

    Return the exit code, NEEDS_ATTENTION as `pass_on` says, and the counts as JSON. With `mark`,
    both are noted to be at this snapshot, also where there was nothing to do.
    """
    published, letters = Publication(), 0
    failures: dict[str, Exception] = {}
    step("publish")
    try:
        published = publishing.publish(settings, latest, mark=mark)
    except Exception as error:
        failures[f"publishing to {settings.topic('share-holders')}"] = error
    step("letters")
    try:
        letters = rejected_letters.send(settings, latest, mark=mark)
    except Exception as error:
        failures[f"the letters of rejected records to {settings.topic('dead-letters')}"] = error
    if failures:
        raise _left_to_do(latest, failures)
    return (NEEDS_ATTENTION if published.needs_attention else DONE), {
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
    unlike = [*{str(error): error for error in failures.values()}.values()]
    return ShardpostError(
        f"snapshot {latest.number} is committed, the tables are complete; left to do:"
        f" {' and '.join(failures)}. {combined(unlike)}. Run `shardpost compact`"
        " again: it does the rest"
    )
