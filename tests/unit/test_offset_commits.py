"""The formats of `__consumer_offsets`, by literal records, and where groups are in it."""

import pytest

from shardpost.kafka.coordinates import TopicPartition
from shardpost.lag.model.offset_commits import OffsetCommits, UnknownFormatError
from shardpost.lag.partition_sizes import sizes_in

P = TopicPartition("t", 7)
AT = 1_800_000_000_000
TIME = AT.to_bytes(8)
COMMIT_KEY = b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\7"
GROUP_KEY = b"\0\2" + b"\0\1g"
OFFSET = (41).to_bytes(8)


def commits(*records: tuple[bytes, bytes | None]) -> OffsetCommits:
    found = OffsetCommits()
    for key, value in records:
        found.add(key, value)
    return found


@pytest.mark.parametrize(
    "value",
    [
        b"\0\0" + OFFSET + b"\0\3abc" + TIME,
        b"\0\1" + OFFSET + b"\0\0" + TIME + TIME,
        b"\0\2" + OFFSET + b"\xff\xff" + TIME,
        b"\0\3" + OFFSET + b"\0\0\0\1" + b"\0\0" + TIME,
        b"\0\4" + OFFSET + b"\0\0\0\1" + b"\4abc" + TIME + b"\0",
        b"\0\4" + OFFSET + b"\0\0\0\1" + b"\xac\2" + b"x" * 299 + TIME + b"\0",
    ],
    ids=["0", "1", "2", "3", "4", "4 with a long text"],
)
def test_the_time_of_a_commit_is_read_in_every_version(value: bytes) -> None:
    assert commits((COMMIT_KEY, value)).committed_at("g", P) == AT


def test_the_older_version_of_the_key_is_known_too() -> None:
    key = b"\0\0" + COMMIT_KEY[2:]
    assert commits((key, b"\0\0" + OFFSET + b"\0\0" + TIME)).committed_at("g", P) == AT


def test_a_tombstone_forgets_a_commit() -> None:
    value = b"\0\3" + OFFSET + b"\0\0\0\1" + b"\0\0" + TIME
    assert commits((COMMIT_KEY, value), (COMMIT_KEY, None)).committed_at("g", P) is None


def test_other_groups_and_partitions_are_not_known() -> None:
    found = commits((COMMIT_KEY, b"\0\2" + OFFSET + b"\0\0" + TIME))
    assert found.committed_at("h", P) is None
    assert found.committed_at("g", TopicPartition("t", 8)) is None


def test_a_group_that_had_members_says_since_when_it_is_empty() -> None:
    rest = b"\0\0\0\5" + b"\xff\xff" + b"\xff\xff" + TIME + b"\0\0\0\0"
    assert commits((GROUP_KEY, b"\0\3\0\x08consumer" + rest)).empty_since("g") == AT
    assert commits((GROUP_KEY, b"\0\3\0\0" + rest)).empty_since("g") is None
    flexible = b"\0\4\x09consumer\0\0\0\5\0\0" + TIME + b"\1\0"
    assert commits((GROUP_KEY, flexible)).empty_since("g") == AT
    assert commits().empty_since("g") is None


@pytest.mark.parametrize("value", [b"\0\5" + OFFSET, b"\0\3" + OFFSET, b"", b"\0\0\0\0"])
def test_another_format_is_refused(value: bytes) -> None:
    if not value:
        assert commits((COMMIT_KEY, value)).committed_at("g", P) is None
        return
    with pytest.raises(UnknownFormatError):
        commits((COMMIT_KEY, value)).committed_at("g", P)


def test_sizes_are_read_from_what_the_java_client_prints() -> None:
    answer = (
        "{1={/data=LogDirDescription(replicaInfos={a-b-7=ReplicaInfo(size=11, offsetLag=0,"
        " isFuture=false), c-0=ReplicaInfo(size=5, offsetLag=0, isFuture=true)}, error=null)},"
        " 2={/data=LogDirDescription(replicaInfos={a-b-7=ReplicaInfo(size=12, offsetLag=0,"
        " isFuture=false)}, error=null)}}"
    )
    wanted = [TopicPartition("a-b", 7), TopicPartition("c", 0), TopicPartition("b", 7)]
    assert sizes_in(answer, wanted) == {TopicPartition("a-b", 7): 12}
