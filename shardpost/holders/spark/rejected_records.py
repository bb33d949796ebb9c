"""Naming in the log what changes nothing: by topic, partition and offset."""

import logging

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.holders.spark.corrections import RETRY
from shardpost.holders.spark.fold import REJECTED
from shardpost.printable import one_line

log = logging.getLogger(__name__)

# So many are named one by one; all of them are in the table rejected_records.
NAMED = 1000


def report_rejected(topic: str, count: int, rejected: DataFrame) -> None:
    """Log each rejected record with its reason, up to NAMED of them, and the number of all."""
    some = rejected.select("topic", "partition", "offset", "reason")
    for row in some.orderBy("topic", "partition", "offset").limit(NAMED).collect():
        log.warning("%s[%d]@%d: %s", *row[:3], one_line(row[3]))
    unnamed = f", {count - NAMED} of them not named here" if count > NAMED else ""
    log.warning(
        "%s: %d records rejected%s; they are kept whole in the table rejected_records",
        *(topic, count, unnamed),
    )


def report_idle(topic: str, count: int, retried: DataFrame, changed: DataFrame) -> None:
    """Log the retries that could be decoded and are not the latest of their key."""
    same = ["key", "partition", "offset", "retry_offset"]
    applied = changed.where(F.col("retry_offset").isNotNull()).select(*same)
    idle = retried.where(F.col("kind") != REJECTED).join(F.broadcast(applied), same, "left_anti")
    for row in idle.select(*RETRY, "partition", "offset").orderBy(*RETRY).limit(NAMED).collect():
        log.warning("%s[%d]@%d: corrects %s[%d]@%d without effect", *row[:3], topic, *row[3:])
    log.warning("%s: %d corrections without effect: something later counts", topic, count)
