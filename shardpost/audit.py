"""Public: the audit of Kafka, for commands and programs.

The topics beside their declaration, the brokers, and the tables' newest snapshot.
"""

from dataclasses import replace
from datetime import datetime

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.topics.declared import SHARE_HOLDERS
from shardpost.topics.model.audit import findings
from shardpost.topics.model.cluster import Built, Unknown, View
from shardpost.topics.model.finding import Finding
from shardpost.topics.observation import observe, require_cluster
from shardpost.topics.topics_file import expected_topics, read_topics_file


def audit(settings: Settings, now: datetime) -> list[Finding]:
    """Return every departure, the worst first.

    ShardpostError if Kafka does not answer at all, or is another cluster than declared; what only
    a part of it does not answer is a finding.
    """
    file = read_topics_file(settings.topics_file)
    expected = expected_topics(settings, file)
    cluster = observe(settings, expected)
    require_cluster(settings, file, cluster)
    built, problem = _built(settings)
    unknown = (*cluster.unknown, *([] if problem is None else [problem]))
    return findings(
        View(
            replace(cluster, unknown=unknown),
            tuple(expected),
            settings.bootstrap,
            now,
            built,
            settings.kafka,
            settings.request_days,
        )
    )


def _built(settings: Settings) -> tuple[Built | None, Unknown | None]:
    """Return what the newest snapshot was built with, or why that is not known."""
    try:
        newest = snapshots.newest(settings)
    except ShardpostError as error:
        return None, Unknown(None, "tables", str(error))
    if newest is None:
        return None, None
    read = {topic: len(ends) for topic, ends in newest.end_offsets.items()}
    holders = settings.topic(SHARE_HOLDERS.name)
    return Built(newest.number, read, holders, newest.shards), None
