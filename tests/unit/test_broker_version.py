"""What a broker's answer says of its release."""

import pytest

from shardpost.kafka.broker_version import metadata_level, request
from shardpost.kafka.releases import release

# Two APIs, one with a tag; then the throttle time, and the tagged fields: the supported features.
APIS = b"\x03" + b"\x00\x00\x00\x00\x00\x0d\x00" + b"\x00\x01\x00\x04\x00\x12\x01\x05\x02ab"
FEATURES = b"\x03" + b"\x06share\x00\x00\x00\x01\x00" + b"\x11metadata.version\x00\x07\x00\x1d\x00"
# In force: the highest level comes first.
IN_FORCE = b"\x02" + b"\x11metadata.version\x00\x1b\x00\x1b\x00"


def answer(*tagged: tuple[int, bytes]) -> bytes:
    fields = b"".join(bytes([tag, len(value)]) + value for tag, value in tagged)
    return b"\0\0\0\x01" + b"\0\0" + APIS + b"\0\0\0\0" + bytes([len(tagged)]) + fields


def test_the_level_is_read_out_of_the_supported_features() -> None:
    assert metadata_level(answer((0, FEATURES))) == 29
    assert metadata_level(answer((0, FEATURES), (1, b"\0" * 8), (2, IN_FORCE))) == 29
    assert metadata_level(answer((1, b"\0" * 8))) is None
    assert metadata_level(answer()) is None


def test_a_broker_that_does_not_know_the_request_says_nothing() -> None:
    assert metadata_level(b"\0\0\0\x01" + b"\0\x23" + APIS) is None


@pytest.mark.parametrize("other", [b"", b"\0\0\0\x01\0", b"HTTP/1.1 400 Bad Request\r\n"])
def test_what_is_no_answer_of_kafka_is_an_error(other: bytes) -> None:
    with pytest.raises(OSError, match="expected an answer of Kafka"):
        metadata_level(other)


def test_an_answer_that_is_cut_off_is_an_error() -> None:
    whole = answer((1, b"\0" * 8))
    for size in range(6, len(whole)):
        with pytest.raises(OSError, match="one that is cut off"):
            metadata_level(whole[:size])
    with pytest.raises(OSError, match="one that is cut off"):
        metadata_level(whole[:6] + b"\xff" * 10_000)


def test_a_level_belongs_to_a_release() -> None:
    assert [release(level) for level in (7, 25, 27, 29, 30, 40)] == [
        "3.9 or older",
        "4.0",
        "4.1",
        "4.2",
        "4.3 or newer",
        "4.3 or newer",
    ]


def test_a_request_says_its_own_length() -> None:
    found = request()
    assert int.from_bytes(found[:4]) == len(found) - 4
