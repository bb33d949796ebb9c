"""The Spark job `compact_positions`, as commands and DAGs submit it."""

from functools import partial

from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.installation import Installation
from shardpost.spark.job import JobResult, JobSpec, request_of


def _records(installation: Installation, *, all_of_them: bool = False) -> int:
    from shardpost.delta import snapshots
    from shardpost.holders import inputs

    last = None if all_of_them else snapshots.newest(installation.tables)
    return inputs.Inputs(installation).unread_originals(last)


def _if_nothing_new(installation: Installation, request: str) -> JobResult | None:
    from shardpost.holders import compaction, inputs
    from shardpost.topics import guards

    asked = request_of(CompactionRequest, request)
    if asked.follow:
        return None
    lock = COMPACT_POSITIONS.name
    with (
        guards.run(installation, lock, asks_owner=not asked.take_over),
        compaction.explain_outage(installation.kafka),
    ):
        if inputs.Inputs(installation).has_new_originals():
            return None  # the job itself looks at all: twice would be once too often
        return compaction.compact(installation, asked)


COMPACT_POSITIONS = JobSpec(
    "compact_positions",
    _records,
    has_own_class_archive=True,
    without_spark=_if_nothing_new,
    stays=lambda request: request_of(CompactionRequest, request).follow is not None,
)
# The same job, to reconcile: it reads all that the inputs hold.
RECONCILE_POSITIONS = JobSpec(
    "compact_positions", partial(_records, all_of_them=True), has_own_class_archive=True
)
CHECK_INPUTS = JobSpec("check_inputs")
