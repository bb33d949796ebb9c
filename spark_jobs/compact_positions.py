"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`. With `--reconcile`, what the
inputs do not hold any more is closed.
"""

from functools import partial

from shardpost.holders.compaction import compact
from shardpost.spark import job
from shardpost.spark.job_arguments import job_parser

if __name__ == "__main__":
    parser = job_parser(__doc__)
    parser.add_argument("--reconcile", action="store_true", help="close what is not held any more")
    arguments = parser.parse_args()
    job.run(partial(compact, reconcile=arguments.reconcile), result=arguments.result)
