"""Sweep the dead letters: what is due is retried, what no retry can help is parked.

Read: each partition of the store, to its end. Transform: fold it to the live letters, decide about
each. Write: retries, parked letters and tombstones in one Kafka transaction per batch; then the
steps of all letters into the table `dead_letters`.
"""

from datetime import UTC, datetime

from shardpost.dead_letters.sweep import sweep_dead_letters
from shardpost.instants import parse_instant
from shardpost.spark import driver
from shardpost.spark.job_spec import job_parser

if __name__ == "__main__":
    parser = job_parser(__doc__)
    parser.add_argument(
        "--now", type=parse_instant, help="the time of the sweep, ISO 8601; default: now"
    )
    arguments = parser.parse_args()
    now = arguments.now or datetime.now(UTC)
    driver.run_body(lambda settings: sweep_dead_letters(settings, now), result=arguments.result)
