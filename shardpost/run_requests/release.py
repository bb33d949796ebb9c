"""Freeing a key by hand, on record."""

from datetime import datetime

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.errors import ShardpostError
from shardpost.kafka.partitioning import partition_of
from shardpost.run_requests import request_topics
from shardpost.run_requests.command_writer import CommandWriter
from shardpost.run_requests.dispatch import alone
from shardpost.run_requests.model.commands import Command, fold
from shardpost.settings import Settings


def release(settings: Settings, key: str, who: str, why: str, now: datetime) -> Command:
    """Free a key and return the command that held it; ShardpostError if none does."""
    partition = partition_of(key, request_topics.partitions(settings))
    with alone(settings):
        writer = CommandWriter(settings, partition)
        try:
            writer.open()
            held = fold(request_topics.command_entries(settings, partition)).get(key)
            if held is None or held.command is None:
                raise ShardpostError(f"nothing runs under the key {key}: see `shardpost runs list`")
            decision = Decision(key.encode(), Kind.RELEASED, who, now, why)
            freed = request_topics.release_written(settings, partition, key, f"by {who}: {why}")
            writer.commit([freed, decisions_topic.written(settings, decision, {})])
        finally:
            writer.close()
    return held.command
