"""The partition that Kafka puts a key into, and so the shard of a client.

The hash is that of Kafka's Java client (`org.apache.kafka.common.utils.Utils.murmur2`); librdkafka
calls the same placement `murmur2_random`. Shard s of a table is partition s of its topic. The same
rule as Spark columns, for the tables, is spark/kafka_source.py; a test compares the two.
"""

from collections import defaultdict
from collections.abc import Iterable

# What to do where producers do not.
ONE_PARTITIONER = (
    "have all producers place keys as Kafka's Java client does (with librdkafka, "
    "as in Python, Go and C: partitioner=murmur2_random)"
)

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MOST = 0x7FFFFFFF


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
    return (murmur2(raw) & _MOST) % partitions


def by_partition(keys: Iterable[str], partitions: int) -> dict[int, list[str]]:
    """Return the keys of each partition that has any, in their order."""
    found: dict[int, list[str]] = defaultdict(list)
    for key in keys:
        found[partition_of(key, partitions)].append(key)
    return found


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that a group is in, by Java's hash of its name.

    Source: Kafka's GroupCoordinatorService.partitionFor and Utils.abs.
    """
    number = 0
    raw = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        number = 31 * number + int.from_bytes(raw[at : at + 2]) & _MASK
    return abs(number - (1 << 32) if number > _MOST else number) % (1 << 31) % partitions
