"""Dead letters that are due go back to their consumers; those beyond help are parked.

Every five minutes, one at a time: reads the topic `dead-letters`, and sends each letter that is due
to `retries` (or the topic of its origin), with backoff. A letter that was tried too often, whose
error no retry can help, or that cannot be understood goes to `parking-lot`, for a person. What was
dealt with leaves the store by a tombstone in the same Kafka transaction, so a sweep that is killed
anywhere sends nothing twice and loses nothing.

Each step of each letter is appended to the table `dead_letters`. The task's result (XCom) is how
many were retried, parked, dropped (failures that were dealt with before), left waiting, held and
taken in from topics of others. **Held** means: more letters of one error are due than
`SHARDPOST_RETRY_FLOOD` allows; the log and the result name the error.

`shardpost letters list` shows where letters stand; `shardpost letters redrive` and `discard` are
what a person decides about parked ones.
"""

from datetime import timedelta

from airflow.sdk import dag

from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.orchestration import DEFAULTS, SparkJob


@dag(
    description="dead-letters → retries and parking-lot, with backoff; the table dead_letters",
    schedule="*/5 * * * *",
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    tags=["dead letters", "spark"],
    doc_md=__doc__,
)
def sweep_dead_letters() -> None:
    """Sweep once."""
    SparkJob(
        task_id="sweep",
        job=SWEEP_DEAD_LETTERS,
        execution_timeout=timedelta(hours=1),
        doc_md="The Spark job `sweep_dead_letters`: take in, sweep, append to the table.",
    )


sweep_dead_letters()
