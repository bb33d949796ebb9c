"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`. With `reconcile`, what the
inputs do not hold any more is closed. Afterwards, the tables of a rebuild that waits to be swapped
are brought to the same snapshot.
"""

from shardpost.holders.compaction_job import CompactionRequest
from shardpost.rebuilds.run import SparkWork
from shardpost.rebuilds.spark.build import build
from shardpost.rebuilds.spark.top_up import compact_and_top_up, top_up
from shardpost.spark import driver

if __name__ == "__main__":
    work = SparkWork(build, top_up)
    driver.run_job(
        CompactionRequest,
        lambda asked, settings: compact_and_top_up(settings, work, asked),
    )
