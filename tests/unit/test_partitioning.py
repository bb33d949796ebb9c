"""Kafka's placement of keys, and the order of a key's records over its partitions."""

import pytest
from hypothesis import given, strategies

from shardpost.holders.model.record_order import partition_rank, seq_of
from shardpost.kafka.partitioning import murmur2, partition_of

KEYS = strategies.text(max_size=20)


# From Kafka's own UtilsTest.testMurmur2, as unsigned numbers.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


@given(KEYS, strategies.integers(1, 30))
def test_the_current_partition_ranks_above_every_other(key: str, partitions: int) -> None:
    current = partition_of(key, partitions)
    ranks = {p: partition_rank(key, p, partitions) for p in range(partitions)}
    assert max(ranks, key=lambda p: ranks[p]) == current
    assert len(set(ranks.values())) == partitions


@given(KEYS, strategies.lists(strategies.integers(1, 30), min_size=2, max_size=5, unique=True))
def test_records_written_while_partitions_are_added_keep_their_order(
    key: str, counts: list[int]
) -> None:
    counts.sort()
    written = [(partition_of(key, count), count) for count in counts]
    ends: dict[int, int] = {}
    known, after = [], []
    for partition, count in written:
        offset = ends.setdefault(partition, 100 - 10 * len(ends))
        ends[partition] += 1
        known.append(seq_of(key, partition, offset, count))
        after.append(seq_of(key, partition, offset, counts[-1]))
    assert known == sorted(set(known))
    assert after[-1] == max(after)
    assert all(late >= early for late, early in zip(after, known, strict=True))
