"""Rules about how many replicas topics have, and how many of them a write takes."""

from collections.abc import Iterator

from shardpost.topics.model import commands
from shardpost.topics.model.changes import is_as_declared
from shardpost.topics.model.expected import IN_SYNC, IN_SYNC_OF_THREE, REPLICAS
from shardpost.topics.model.finding import Finding
from shardpost.topics.model.plan import REPLICAS as REPLICATION_FACTOR
from shardpost.topics.model.topic_rules import fix_of, source_of
from shardpost.topics.model.view import View


def replication_factor(view: View) -> Iterator[Finding]:
    """Find fewer replicas than three, on a cluster that could have them."""
    if view.has_few_brokers:
        return
    for one, found in view.there:
        least = one.least_replicas
        if found.replicas < least:
            yield Finding(
                rule="replication-factor",
                severity="risk" if found.replicas < REPLICAS else "drift",
                topic=one.name,
                setting=REPLICATION_FACTOR,
                found=str(found.replicas),
                source="topic",
                expected=str(least),
                why="with the disk of a broker, records are lost that no other has",
                fix=commands.reassign(
                    view.bootstrap, one.name, found, view.cluster.known_brokers, least
                ),
            )


def min_insync_replicas(view: View) -> Iterator[Finding]:
    """Find a write that is acknowledged although only one replica has it."""
    if view.has_few_brokers:
        return
    for one, found in view.there:
        value = found.value(IN_SYNC)
        wanted = one.config.get(IN_SYNC, str(IN_SYNC_OF_THREE))
        if found.replicas < REPLICAS or value is None or is_as_declared(IN_SYNC, wanted, value):
            continue
        yield Finding(
            rule="min-insync-replicas",
            severity="risk",
            topic=one.name,
            setting=IN_SYNC,
            found=value,
            source=source_of(found, IN_SYNC),
            expected=f"{wanted} or more",
            why="a record is acknowledged that only one broker has",
            fix=fix_of(view, one, found, IN_SYNC),
        )
