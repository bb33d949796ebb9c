"""A driver that is to take over compacts the last records into tables of its own first.

So its JVM has loaded and compiled what a turn needs, while another one still follows. Nobody else
sees these tables, and nothing is published.
"""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders.inputs import Inputs
from shardpost.holders.model.unread import Unread
from shardpost.holders.spark.compaction import build_snapshot
from shardpost.installation import Installation
from shardpost.spark import driver
from shardpost.spark.submit import is_local

log = logging.getLogger(__name__)

# Of each partition, in each of two rounds: the first fills empty tables, the second changes them.
RECORDS = 100


def warm_up(installation: Installation) -> None:
    """Compact the last records of the topics, twice; what goes wrong is for the first turn.

    Not with workers on other machines, which have no part in a folder of this one.
    """
    if not is_local(installation.settings.spark_master):
        return
    with tempfile.TemporaryDirectory() as folder:
        own = installation.having(home=Path(folder), tables=None)
        try:
            with driver.job_errors():
                for left in (RECORDS, 0):
                    look, unread = Inputs(own).look()
                    snapshot, _ = build_snapshot(
                        own, look, _last(unread, left), own.settings.country
                    )
                    snapshots.commit(own.tables, snapshot)
        except ShardpostError as error:
            log.info("the driver is not warm: %s", error)


def _last(unread: Unread, left: int) -> Unread:
    """Return the last records of each partition, but for so many of them."""
    ends = {
        topic: {number: max(0, end - left) for number, end in of_topic.items()}
        for topic, of_topic in unread.ends.items()
    }
    ranges = (
        replace(range_, first=max(range_.first, until - RECORDS), until=until)
        for range_ in unread.ranges
        if (until := ends[range_.topic][range_.partition]) > range_.first
    )
    return replace(unread, ranges=[*ranges], ends=ends)
