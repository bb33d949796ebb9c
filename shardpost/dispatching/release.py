"""Freeing a key by hand, on record."""

from datetime import datetime

from shardpost.adapters import decisions, run_topics
from shardpost.adapters.run_writer import RunWriter
from shardpost.dispatching.dispatch import alone
from shardpost.domain.decisions import Decision, Kind
from shardpost.domain.partitioning import partition_of
from shardpost.domain.run_commands import Command, fold
from shardpost.errors import ShardpostError
from shardpost.settings import Settings


def release(settings: Settings, key: str, who: str, why: str, now: datetime) -> Command:
    """Free a key and return the command that held it; ShardpostError if none does."""
    partition = partition_of(key, run_topics.partitions(settings))
    with alone(settings):
        writer = RunWriter(settings, partition)
        try:
            writer.open()
            held = fold(run_topics.command_entries(settings, partition)).get(key)
            if held is None or held.command is None:
                raise ShardpostError(f"nothing runs under the key {key}: see `shardpost runs list`")
            decision = Decision(key.encode(), Kind.RELEASED, who, now, why)
            freed = run_topics.release_written(settings, partition, key, f"by {who}: {why}")
            writer.commit([freed, decisions.written(settings, decision, {})])
        finally:
            writer.close()
    return held.command
