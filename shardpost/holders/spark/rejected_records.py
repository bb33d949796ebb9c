"""Records that changed nothing, or are gone, reported in the log by their coordinates."""

import logging

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.compacted_topics import UncertainKeys
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import RETRY_NAMES
from shardpost.kafka.coordinates import Coordinates
from shardpost.printable import one_line

log = logging.getLogger(__name__)

# So many are named one by one; the table rejected_records has all.
MAX_NAMED = 1000


def rejected_of(history: DataFrame, topic: str) -> DataFrame:
    """Return the undecodable records among rows of a topic's history, as rows of their table."""
    columns = ("timestamp", "value", "headers", "reason", "snapshot")
    return history.where(F.col("kind") == RecordKind.REJECTED.value).select(
        F.coalesce("retry_topic", F.lit(topic)).alias("topic"),
        F.coalesce("retry_partition", "partition").alias("partition"),
        F.coalesce("retry_offset", "offset").alias("offset"),
        *(F.col("raw_key").alias("key"), *columns),
    )


def report_rejected(topic: str, count: int, rejected: DataFrame) -> None:
    """Log up to MAX_NAMED rejected records with their reasons, and the number of all."""
    some = rejected.select("topic", "partition", "offset", "reason")
    for *found, reason in some.orderBy("topic", "partition", "offset").limit(MAX_NAMED).collect():
        log.warning("%s: %s", Coordinates(*found), one_line(reason))
    unnamed = f", {count - MAX_NAMED} of them not named here" if count > MAX_NAMED else ""
    log.warning(
        "%s: %d records rejected%s; they are kept whole in the table rejected_records",
        *(topic, count, unnamed),
    )


def report_without_effect(topic: str, count: int, retried: DataFrame, changed: DataFrame) -> None:
    """Log up to MAX_NAMED decodable retries that are not the latest of their key, and the number.

    `retried` are rows of a history; `changed` are `fold.changes`.
    """
    same = ["key", "partition", "offset", "retry_offset"]
    applied = changed.where(F.col("retry_offset").isNotNull()).select(*same)
    decodable = retried.where(F.col("kind") != RecordKind.REJECTED.value)
    others = decodable.join(F.broadcast(applied), same, "left_anti")
    named = others.select(*RETRY_NAMES, "partition", "offset").orderBy(*RETRY_NAMES)
    for *retry, partition, offset in named.limit(MAX_NAMED).collect():
        origin = Coordinates(topic, partition, offset)
        log.warning("%s: corrects %s without effect", Coordinates(*retry), origin)
    log.warning("%s: %d corrections without effect: a later record counts", topic, count)


def report_reconciled(topic: str, count: int, closing: DataFrame) -> None:
    """Log up to MAX_NAMED records that are not in the topic any more, and the number of all.

    `closing` are the rows of a history that close their keys.
    """
    some = closing.select("partition", "offset", "key").orderBy("partition", "offset")
    for partition, offset, key in some.limit(MAX_NAMED).collect():
        at = Coordinates(topic, partition, offset)
        log.warning("%s: not in the topic any more: key %s is closed", at, one_line(key))
    log.warning("%s: %d keys closed, whose records are not in the topic any more", topic, count)


def report_uncertain(topic: str, found: UncertainKeys) -> None:
    """Log up to MAX_NAMED keys whose good records may be lost, and the number of all."""
    for key in found.keys:
        log.warning(
            "%s: key %s is left as it is: good records of it may be lost", topic, one_line(key)
        )
    log.warning(
        "%s: %d keys may have lost good records, behind which undecodable ones came; write new"
        " records of them where they are wrong",
        *(topic, found.count),
    )
