"""Dead letters that are due are retried, with backoff; those that no retry can help are parked.

Every five minutes, one run at a time: reads the topic `dead-letters`, and sends each letter that is
due to `retries` (or the retry topic of its origin). A letter that is exhausted, fatal or malformed
goes to `parking-lot`, for a person. Each letter leaves the store by a tombstone in the same Kafka
transaction, so a sweep that is killed anywhere sends nothing twice and loses nothing.

Each step of each letter is appended to the table `dead_letters`. The task's result (XCom) is how
many were retried, parked, dropped (failures reported again after they were resolved), left waiting,
held, and taken in from topics of Kafka Connect and Spring Kafka. **Held** means: more letters of
one error are due than `SHARDPOST_RETRY_FLOOD` allows; the log and the result name the error.

`shardpost letters list` lists the letters and their states; `shardpost letters redrive` and
`discard` carry out what a person decides about parked ones.
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
