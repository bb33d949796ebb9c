"""One snapshot of positions, clients and exchanges, and who holds US stock.

Every 15 minutes (`SHARDPOST_COMPACT_SCHEDULE`), and by hand: reads the new records of the topics
`positions`, `clients` and `exchanges`, and corrections from `retries`, commits **one snapshot** of
the Delta tables, and publishes the changes to `share-holders`. Rejected records stop nothing: they
are kept in the table `rejected_records`, and become letters in `dead-letters`. With nothing new it
only updates `looked_at` of the last snapshot. It waits while another compaction runs. Killed at any
point and run again, it ends with the same result.

**Following.** With the param `follow` (for scheduled runs `SHARDPOST_FOLLOW=on`), a run stays and
compacts again within seconds of something new. It ends when the next run has taken over, at the
latest ten minutes after that run is due.

**Refused until a person acts** (`docs/compaction.md`, "Refused runs"). The task fails, and neither
it nor a later run changes anything, if

- open positions or holders fall by more than `SHARDPOST_MAX_DROP`, or `SHARDPOST_COUNTRY`,
  `SHARDPOST_HOLDS` or `SHARDPOST_INPUTS` differs from the last snapshot's: a run with **accept
  drop**, **country changed** or **inputs changed** continues;
- tombstones may have been lost, or good records behind undecodable ones (without a retry); an input
  was recreated, or its records were deleted unread (after retries): after
  `shardpost compact --reconcile`, clear the failed task.

**Succeeds with a warning** (the job ends with 3; the log says what to do), if the result (XCom) has
`open_transactions`, which hide records and hold `looked_at` back, `too_large` is not 0 (lists that
do not fit into a record), or `share_holders_compacted` is false.
"""

from datetime import UTC, datetime, timedelta
from functools import partial

from airflow.sdk import Context, CronTriggerTimetable
from shardpost_assets import OwnAssets
from shardpost_dag_rules import DagWithDeadline, apply_rules, due_within

from shardpost.commands.positions import compact_command
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest, Follow
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import (
    DEFAULTS,
    MEANT,
    NO_BACKFILL,
    flag_param,
    params_of,
)
from shardpost.settings import installations
from shardpost.values.schedules import longest_pause, longest_wait, next_run

# By then the next run is warm, and has taken over.
HAND_OVER = timedelta(minutes=10)
CONFIRMED = (*MEANT, "inputs_changed")
PARAMS = params_of(compact_command, CONFIRMED)


def compaction_request(schedule: str, context: Context) -> CompactionRequest:
    """Return the request of a run."""
    params = context["params"]
    follow = None
    if params["follow"]:
        follow = Follow(next_run(schedule, datetime.now(UTC)) + HAND_OVER)
    return CompactionRequest(**{name: bool(params[name]) for name in CONFIRMED}, follow=follow)


for own in installations():
    schedule, follows = own.one("compact_schedule"), own.one("follow") == "on"
    follow_param = flag_param(
        "Follow",
        "Follow until the next run, and compact whenever there are new records.",
        default=follows,
    )
    with DagWithDeadline(
        own.id("compact_positions"),
        description="Topics of positions, clients and exchanges → Delta tables → share-holders",
        schedule=CronTriggerTimetable(schedule, timezone="UTC"),
        catchup=False,
        deadline=due_within(longest_wait(schedule)),
        allowed_run_types=NO_BACKFILL,
        max_active_runs=2 if follows else 1,  # the next one begins beside the one that follows
        default_args=DEFAULTS,
        params={**PARAMS, "follow": follow_param},
        tags=own.tags("positions", "spark"),
        doc_md=__doc__,
    ) as made:
        SparkJob(
            task_id="compact",
            job=COMPACT_POSITIONS,
            request=partial(compaction_request, schedule),
            outlets=OwnAssets(own).of_compaction,
            execution_timeout=timedelta(hours=3) + longest_pause(schedule) + HAND_OVER,
            doc_md="The Spark job `compact_positions`: read, fold, commit, publish.",
        )
    apply_rules(own, made)
