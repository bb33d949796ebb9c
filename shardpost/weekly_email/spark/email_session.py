"""The Spark session of the weekly e-mail: as many shards in parallel as the settings allow."""

from pyspark.sql import SparkSession

from shardpost.settings import Settings
from shardpost.spark import session
from shardpost.weekly_email.job import WEEKLY_EMAIL

WORKER_DAEMON = "shardpost.weekly_email.spark.worker_daemon"


def start(settings: Settings, shards: int) -> SparkSession:
    """Return the session of a run of that many shards."""
    at_once = min(settings.shards_at_once, shards)
    return session.start(WEEKLY_EMAIL.name, at_once=at_once, worker_daemon=WORKER_DAEMON)
