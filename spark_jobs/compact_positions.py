"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`. With `reconcile`, what the
inputs do not hold any more is closed. Afterwards, the tables of a rebuild that waits to be swapped
are brought to the same snapshot. With `stay` that is done again and again.
"""

from dataclasses import replace

from shardpost.holders.compaction_job import CompactionRequest
from shardpost.holders.spark.follow import Follower
from shardpost.installation import Installation
from shardpost.rebuilds.run import SparkWork
from shardpost.rebuilds.spark.build import build
from shardpost.rebuilds.spark.top_up import compact_and_top_up, top_up
from shardpost.spark import driver
from shardpost.spark.job_spec import JobResult

WORK = SparkWork(build, top_up)


def turn(installation: Installation, asked: CompactionRequest) -> JobResult:
    """Compact once."""
    return compact_and_top_up(installation, WORK, asked)


def run(asked: CompactionRequest, installation: Installation) -> JobResult:
    """Compact once, or stay."""
    if asked.stay is None:
        return turn(installation, asked)
    return Follower(turn, installation, asked.stay).run(replace(asked, stay=None))


if __name__ == "__main__":
    driver.run_job(CompactionRequest, run)
