"""The shard of a client: the part that has it of the holder tables, of their topic, of a week."""

from shardpost.kafka.partitioning import partition_of


def shard_of(client: str, shards: int) -> int:
    """Return the number, from 0, of a client's shard: the partition of its key in Kafka."""
    return partition_of(client, shards)
