"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`. With `--reconcile`, what the
inputs do not hold any more is closed. Afterwards, the tables of a rebuild that waits to be swapped
are brought to the same snapshot.
"""

from shardpost.rebuilds.run import SparkWork
from shardpost.rebuilds.spark.build import build
from shardpost.rebuilds.spark.top_up import compact_and_top_up, top_up
from shardpost.spark import driver
from shardpost.spark.job_spec import job_parser

if __name__ == "__main__":
    parser = job_parser(__doc__)
    parser.add_argument("--reconcile", action="store_true", help="close what is not held any more")
    arguments = parser.parse_args()
    work = SparkWork(build, top_up)
    driver.run_body(
        lambda settings: compact_and_top_up(settings, work, reconcile=arguments.reconcile),
        result=arguments.result,
    )
