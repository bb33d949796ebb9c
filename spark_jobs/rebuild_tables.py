"""Compute the tables anew beside those in use, top them up, swap them, or roll that back.

Read: the histories in use, or the topics, at a pinned snapshot. Transform: decode, fold, who holds.
Write: tables in folders of their own, and the row of the rebuild that names their versions; a swap
commits one row in `snapshots`, and publishes only the holders whose list changed.
"""

from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.run import run
from shardpost.spark import driver

if __name__ == "__main__":
    driver.run_job(
        RebuildRequest,
        run,
        noted_as=lambda request, job: None if request.action is Action.TOP_UP else job,
    )
