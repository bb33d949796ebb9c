"""The class archive of Spark's drivers (spark/jars.py), made at set-up.

By one compaction of a few records, on a broker of its own. So no later job has to.
"""

import sys
import tempfile
from pathlib import Path

from shardpost import logs
from shardpost.embedded import broker, daemons, demo
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.installation import Installation
from shardpost.settings import Settings
from shardpost.spark.jars import archive_options
from shardpost.spark.submit import submit
from shardpost.topics.creation import apply_topics


def create_class_archive() -> None:
    """Create the archive where there is none; ShardpostError if that is not possible."""
    if archive_options():
        return
    with tempfile.TemporaryDirectory(prefix="shardpost-setup-") as home:
        settings = Settings.model_validate(
            {"home": Path(home), "partitions": 1, "kafka_port": daemons.choose_port()}
        )
        try:
            broker.start(settings)
            apply_topics(Installation(settings))
            demo.produce(settings, (*demo.CONTACTS, *demo.POSITIONS))
            submit(Installation(settings), COMPACT_POSITIONS)
        finally:
            broker.stop(settings)
    if not archive_options():
        raise ShardpostError("the compaction left no class archive: the next compaction makes it")


if __name__ == "__main__":
    logs.configure_logging()
    try:
        create_class_archive()
    except ShardpostError as error:
        sys.exit(f"shardpost: {error}")
