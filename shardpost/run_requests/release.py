"""Freeing a key by hand, with a decision on record."""

from datetime import datetime

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.errors import ShardpostError
from shardpost.kafka.partitioning import partition_of
from shardpost.run_requests import request_topics
from shardpost.run_requests.command_writer import CommandWriter
from shardpost.run_requests.dispatch import dispatch_lock
from shardpost.run_requests.model.commands import Command, fold
from shardpost.settings import Settings
from shardpost.topics.stores import require_stores


def release(settings: Settings, key: str, who: str, why: str, now: datetime) -> Command:
    """Free a key and return the command that held it; ShardpostError if none does."""
    partition = partition_of(key, request_topics.partitions(settings))
    with dispatch_lock(settings):
        require_stores(settings, "run-commands")
        writer = CommandWriter(settings, partition)
        try:
            writer.open()
            entry = fold(request_topics.command_entries(settings, partition)).get(key)
            if entry is None or entry.command is None:
                raise ShardpostError(
                    f"no run command is in force under key {key}: see `shardpost runs list`"
                )
            decision = Decision(key.encode(), Kind.RELEASED, who, now, why)
            tombstone = request_topics.release_record(settings, partition, key, f"by {who}: {why}")
            writer.commit([tombstone, decisions_topic.written(settings, decision, {})])
        finally:
            writer.close()
    return entry.command
