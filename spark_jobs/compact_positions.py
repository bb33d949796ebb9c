"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`. With `reconcile`, what the
inputs do not hold any more is closed. Afterwards, the tables of a rebuild that waits to be swapped
are brought to the same snapshot. With `follow` that is done again and again.
"""

from dataclasses import replace

from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.spark.compaction import compact
from shardpost.holders.spark.follower import Follower
from shardpost.installation import Installation
from shardpost.rebuilds.run import top_up_waiting, with_rule_held
from shardpost.spark import driver
from shardpost.spark.job import JobResult


def turn(installation: Installation, asked: CompactionRequest) -> JobResult:
    """Compact once; then top up the tables of a rebuild that waits to be swapped."""
    result = compact(installation, asked, now_in_force=with_rule_held)
    top_up_waiting(installation)
    return result


def run(asked: CompactionRequest, installation: Installation) -> JobResult:
    """Compact once, or follow."""
    if asked.follow is None:
        return turn(installation, asked)
    return Follower(turn, installation, asked.follow).run(replace(asked, follow=None))


if __name__ == "__main__":
    driver.run_job(CompactionRequest, run)
