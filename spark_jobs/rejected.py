"""Naming rejected records in the log, by topic, partition and offset."""

import logging

from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# So many are named one by one; all of them are in the table rejected_records.
NAMED = 1000


def report_rejected(topic: str, count: int, rejected: DataFrame) -> None:
    """Log each rejected record with its reason, up to NAMED of them, and the number of all."""
    some = rejected.select("topic", "partition", "offset", "reason")
    for row in some.orderBy("topic", "partition", "offset").limit(NAMED).collect():
        log.warning("%s[%d]@%d: %s", *row)
    unnamed = f", {count - NAMED} of them not named here" if count > NAMED else ""
    log.warning(
        "%s: %d records rejected%s; they are kept whole in the table rejected_records",
        *(topic, count, unnamed),
    )
