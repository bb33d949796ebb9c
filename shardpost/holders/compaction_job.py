"""The Spark job `compact_positions`, as commands and DAGs submit it."""

from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.installation import Installation
from shardpost.spark.job_spec import JobResult, JobSpec, request_of


def _unread_records(installation: Installation) -> int:
    from shardpost.delta import snapshots
    from shardpost.holders import inputs

    return inputs.Inputs(installation).unread_originals(snapshots.newest(installation.tables))


def _all_records(installation: Installation) -> int:
    from shardpost.holders import inputs

    return inputs.Inputs(installation).unread_originals(None)


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
    _unread_records,
    has_own_class_archive=True,
    without_spark=_if_nothing_new,
    stays=lambda request: request_of(CompactionRequest, request).follow is not None,
)
# The same job, to reconcile: it reads all that the inputs hold.
RECONCILE_POSITIONS = JobSpec("compact_positions", _all_records, has_own_class_archive=True)
