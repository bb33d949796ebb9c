"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`.
"""

from shardpost.holders.compaction import compact
from shardpost.spark import job

if __name__ == "__main__":
    arguments = job.parser(__doc__).parse_args()
    job.run(compact, result=arguments.result)
