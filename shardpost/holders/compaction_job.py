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
    from shardpost.holders import compaction
    from shardpost.topics import guards

    asked = request_of(CompactionRequest, request)
    if asked.follow:
        return None
    with guards.run(installation, COMPACT_POSITIONS.name, asks_owner=not asked.take_over):
        return compaction.compact(installation, asked)


def jars_of_inputs(installation: Installation) -> list[str]:
    """Return what Spark needs to decode the records of the inputs, as files of `ivy/`."""
    from shardpost.holders.inputs import mappings_of

    return ["avro"] * any("avro" in one.formats for one in mappings_of(installation).values())


COMPACT_POSITIONS = JobSpec(
    "compact_positions",
    _records,
    has_own_class_archive=True,
    more_jars=jars_of_inputs,
    without_spark=_if_nothing_new,
    stays=lambda request: request_of(CompactionRequest, request).follow is not None,
)
# The same job, to reconcile: it reads all that the inputs hold.
RECONCILE_POSITIONS = JobSpec(
    "compact_positions",
    partial(_records, all_of_them=True),
    has_own_class_archive=True,
    more_jars=jars_of_inputs,
)
CHECK_INPUTS = JobSpec("check_inputs", more_jars=jars_of_inputs)
