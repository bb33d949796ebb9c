"""Which record of a key is the later one: histories of several partitioners, growth and imports."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.errors import ShardpostError
from shardpost.holders.model.record_order import (
    MAX_GENERATION,
    MAX_OFFSETS,
    MAX_PARTITIONS,
    Numbering,
    lowest_of,
    require_orderable,
)
from shardpost.kafka.records import partition_of
from tests.support.simulated_topic import (
    Event,
    Grow,
    Imported,
    Put,
    Run,
    Topic,
    first,
    librdkafka,
    sarama,
    told,
)

KEYS = st.sampled_from([str(number) for number in range(12)])
TIMES = st.integers(0, 40)
KAFKAS = st.one_of(st.builds(Put, KEYS, at=TIMES), st.builds(Put, KEYS, at=TIMES), st.just(Run()))


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.lists(KAFKAS, max_size=8), st.integers(1, 9), st.lists(KAFKAS))),
)
def test_where_all_place_keys_as_kafka_does_no_timestamp_counts_however_partitions_are_added(
    partitions: int, parts: list[tuple[list[Event], int, list[Event]]]
) -> None:
    topic = Topic(partitions)
    for before, more, after in parts:
        for event in (*before, Grow(more), *after, Run()):  # added once between two runs
            topic.happens(event)
        assert topic.latest == topic.arrived


@given(KEYS, st.lists(st.integers(1, 30), min_size=2, max_size=5, unique=True))
def test_read_for_the_first_time_the_record_in_the_newest_home_counts(
    key: str, counts: list[int]
) -> None:
    counts.sort()
    growth = [Grow(more - less) for less, more in pairwise(counts)]
    puts: list[Event] = [Put(key, at=9)]
    for number, grown in enumerate(growth):
        puts += [grown, Put(key, at=number)]
    assert told(counts[0], puts) == {key: len(counts) - 1}


PARTITIONERS = st.sampled_from([partition_of, librdkafka, sarama, first])
MIXED = st.one_of(
    st.builds(Put, KEYS, PARTITIONERS),
    st.builds(Put, KEYS, PARTITIONERS),
    st.builds(Imported, KEYS),
    st.just(Run()),
    st.builds(Grow, st.integers(1, 4)),
)


def is_explained(topic: Topic, key: str) -> bool:
    """Tell whether added partitions explain by themselves where the unread records of a key are."""
    numbering = topic.numbering
    levels = {numbering.level(one.key, one.partition) for one in topic.unread}
    own = {numbering.level(key, one.partition) for one in topic.unread if one.key == key}
    return len(own) > 1 and 0 not in (own if numbering.before else levels)


@given(st.integers(1, 9), st.lists(MIXED, max_size=40))
def test_the_newest_record_counts_whatever_partitioners_there_are(
    partitions: int, events: list[Event]
) -> None:
    topic = Topic(partitions)
    unsure: set[str] = set()
    for event in (*events, Run()):
        if isinstance(event, Run | Imported):
            written = {one.key for one in topic.unread}
            unsure = {key for key in written if is_explained(topic, key)} | (unsure - written)
        topic.happens(event)
        if isinstance(event, Run):
            expected = topic.arrived
            found = topic.latest
            for key in expected.keys() - unsure:
                in_time = [one for one in topic.records if one.key == key]
                at = {one.nth: one.at for one in in_time}
                assert found[key] == expected[key] or at[found[key]] == at[expected[key]]


# A key that librdkafka puts where Kafka's partitioner never would in 4 or 8 partitions, or fewer.
KEY = next(
    key
    for key in map(str, range(99))
    if all(librdkafka(key, n) not in {partition_of(key, m + 1) for m in range(n)} for n in (4, 8))
)
UPDATE = Put(KEY, librdkafka)
OTHER = Put("other")


def of_java(at: int) -> Put:
    return Put(KEY, at=at)


def of_python(at: int) -> Put:
    return Put(KEY, librdkafka, at)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([Run(), Imported(KEY), Run(), UPDATE], 1),
        ([OTHER, Imported(KEY), OTHER, UPDATE], 3),
        ([UPDATE, Imported(KEY), UPDATE], 2),
        ([UPDATE, Imported(KEY), Grow(4), UPDATE], 2),
        ([Put(KEY), Run(), Grow(4), Imported(KEY), Put(KEY)], 2),
        ([Run(), of_java(5), of_python(4)], 0),
        ([Run(), of_python(5), of_java(4), OTHER], 0),
        ([Run(), of_python(5), of_java(5)], 1),
        ([Run(), of_java(5), of_python(5)], 0),
        ([of_java(5), Run(), of_python(4)], 1),
        ([Run(), of_python(9), of_python(1), of_java(5)], 1),
        ([of_python(4), of_java(3), OTHER], 0),
        ([OTHER, Run(), Grow(4), of_python(9), of_java(3)], 1),
    ],
    ids=[
        "after an import of a new key, read later",
        "after an import of a new key, read together",
        "after an import of a known key, in its partition",
        "with partitions added since the import",
        "an import goes where the key lies, and its home is newer once partitions were added",
        "read together, timestamps decide",
        "read together, timestamps decide, whoever wrote first",
        "with equal timestamps, the home counts",
        "with equal timestamps, the home counts, if it came first too",
        "read later counts, whatever the timestamps are",
        "no timestamp changes the order in a partition",
        "read for the first time",
        "partitions added since do not explain it",
    ],
)
def test_which_record_counts(events: list[Event], expected: int) -> None:
    assert told(4, events)[KEY] == expected


def test_the_default_of_librdkafka_is_mostly_elsewhere() -> None:
    keys = [str(number) for number in range(1, 1001)]
    assert sum(librdkafka(key, 8) != partition_of(key, 8) for key in keys) > 800


@given(st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 50)), min_size=1, max_size=6))
def test_all_numbers_of_a_run_are_above_those_of_every_run_before(
    grown: list[dict[int, int]],
) -> None:
    read: dict[int, int] = {}
    highest = (5 << 60) - 1  # of release 0.2.0
    for more in grown:
        partitions = range(max([*read, *more, 0]) + 1)
        ends = {number: read.get(number, 0) + more.get(number, 0) for number in partitions}
        numbering = Numbering.of(0, read, ends)
        seqs = [
            numbering.seq(key, number, offset)
            for key in ("1", "x")
            for number in partitions
            for offset in range(read.get(number, 0), ends[number])
        ]
        for seq in seqs:
            assert highest < seq
        highest, read = max([highest, *seqs]), ends


def test_every_record_of_a_recreated_topic_is_above_all_of_the_one_before() -> None:
    full = {0: MAX_OFFSETS}
    for generation in range(MAX_GENERATION + 1):
        found = Numbering.of(generation, {}, full)
        highest = found.base + (MAX_PARTITIONS + 1) * found.size - 1
        assert highest < 1 << 63
        assert highest < Numbering.of(generation + 1, {}, full).base
        assert lowest_of(generation) <= found.base


@pytest.mark.parametrize(
    ("generation", "ends", "said"),
    [
        (0, dict.fromkeys(range(MAX_PARTITIONS + 1), 0), "at most 4095 partitions, found 4096"),
        (0, {0: 1 << 43, 1: 1}, "at most 8796093022208 offsets in all partitions, found"),
        (MAX_GENERATION + 1, {0: 1}, "at most 95 times recreated, found 96"),
    ],
)
def test_a_topic_whose_records_have_no_number_is_refused(
    generation: int, ends: dict[int, int], said: str
) -> None:
    with pytest.raises(ShardpostError, match=f"topic positions: expected .*{said}"):
        require_orderable("positions", generation, {"positions": ends})
    require_orderable("positions", MAX_GENERATION, {"positions": {0: 1 << 43}})
