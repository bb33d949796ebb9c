"""Kafka's placement of keys, and the order of a key's records over its partitions."""

import pytest
from hypothesis import given, strategies

from shardpost.errors import ShardpostError
from shardpost.holders.model.record_order import (
    MAX_GENERATION,
    MAX_PARTITIONS,
    is_in_current_partition,
    layout_of,
    partition_rank,
    require_orderable,
    seq_of,
)
from shardpost.kafka.partitioning import murmur2, partition_of, partition_of_group

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


def highest(generation: int) -> int:
    """Return the highest seq that a record of a generation can have."""
    layout = layout_of(generation)
    return layout.seq(layout.keyed_rank + MAX_PARTITIONS, (1 << layout.offset_bits) - 1)


def test_every_record_of_a_recreated_topic_is_above_all_of_the_one_before() -> None:
    for generation in range(MAX_GENERATION):
        assert highest(generation) < layout_of(generation + 1).seq(0, 0)
    assert highest(MAX_GENERATION) < 1 << 63


@given(KEYS, strategies.integers(1, 30), strategies.integers(0, MAX_GENERATION))
def test_in_each_generation_the_current_partition_is_told_from_older_ones(
    key: str, partitions: int, generation: int
) -> None:
    for partition in range(partitions):
        seq = seq_of(key, partition, 41, partitions, generation)
        is_current = partition == partition_of(key, partitions)
        assert is_in_current_partition(seq, partitions, generation) is is_current


@pytest.mark.parametrize(
    ("generation", "ends", "said"),
    [
        (0, dict.fromkeys(range(MAX_PARTITIONS + 1), 0), "at most 4095 partitions, found 4096"),
        (0, {0: (1 << 48) + 1}, "as the highest end offset, found 281474976710657"),
        (1, {0: (1 << 42) + 1}, "at most 4398046511104 as the highest end offset"),
        (MAX_GENERATION + 1, {0: 1}, "at most 96 times recreated, found 97"),
    ],
)
def test_a_topic_whose_records_have_no_number_is_refused(
    generation: int, ends: dict[int, int], said: str
) -> None:
    with pytest.raises(ShardpostError, match=f"topic positions: expected .*{said}"):
        require_orderable("positions", generation, {"positions": ends})
    require_orderable("positions", 0, {"positions": {0: 1 << 48}})
    require_orderable("positions", MAX_GENERATION, {"positions": {0: 1 << 42}})


def test_a_group_is_in_the_partition_of_javas_hash() -> None:
    # "polygenelubricants" has the least int as its hash in Java, of which there is no absolute.
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("a", 50) == 97 % 50
    assert partition_of_group("hello", 50) == 99_162_322 % 50
    assert partition_of_group("shardpost", 1) == 0
