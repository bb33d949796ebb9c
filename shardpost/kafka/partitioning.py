"""The partition that Kafka places a key in.

The hash is that of Kafka's Java client (`org.apache.kafka.common.utils.Utils.murmur2`); librdkafka
calls the same placement `murmur2_random`. Shard s of a table is partition s of its topic.
"""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of the key, unsigned."""
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: str | bytes, partitions: int) -> int:
    """Return the partition (shard) of a key in a topic of that many partitions."""
    raw = key.encode() if isinstance(key, str) else key
    return (murmur2(raw) & 0x7FFFFFFF) % partitions
