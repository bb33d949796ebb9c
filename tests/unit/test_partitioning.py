"""Kafka's placement of keys, formats of commits and releases, the Java client's settings."""

import json
from pathlib import Path

import pytest

from shardpost.errors import UsageError
from shardpost.kafka.clients import librdkafka_settings
from shardpost.kafka.greeting import metadata_level, request
from shardpost.kafka.java_settings import java_settings
from shardpost.kafka.records import TopicPartition, murmur2, partition_of_group
from shardpost.lag.offset_expiry import OffsetCommits, UnknownFormatError
from shardpost.lag.partition_sizes import sizes_in
from shardpost.topics.model.cluster import release


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


def test_a_group_is_in_the_partition_of_javas_hash() -> None:
    # "polygenelubricants" has the least int as its hash in Java, of which there is no absolute.
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("a", 50) == 97 % 50
    assert partition_of_group("hello", 50) == 99_162_322 % 50
    assert partition_of_group("shardpost", 1) == 0


P = TopicPartition("t", 7)
AT = 1_800_000_000_000
TIME = AT.to_bytes(8)
COMMIT_KEY = b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\7"
GROUP_KEY = b"\0\2" + b"\0\1g"
OFFSET = (41).to_bytes(8)


def test_a_group_of_kafka_streams_has_members_as_long_as_one_is_on_record() -> None:
    group = b"\0\x11" + b"\0\3app", b"\0\0\0\0\0\2"
    member = b"\0\x13" + b"\0\3app" + b"\0\4m-12"
    assert not commits(group).has_streams_members("app")
    assert commits(group, (member, b"\0\0")).has_streams_members("app")
    assert not commits(group, (member, b"\0\0")).has_streams_members("ap")
    assert not commits(group, (member, b"\0\0"), (member, None)).has_streams_members("app")


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
    with pytest.raises(OSError, match="expected an answer from Kafka"):
        metadata_level(other)


def test_a_level_belongs_to_a_release() -> None:
    releases = ["3.9 or older", "4.0", "4.1", "4.2", "4.3 or newer", "4.3 or newer"]
    assert [release(level) for level in (7, 25, 27, 29, 30, 40)] == releases


def test_a_request_says_its_own_length() -> None:
    found = request()
    assert int.from_bytes(found[:4]) == len(found) - 4


def test_a_login_becomes_a_jaas_line_with_its_quotes_escaped() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "/ca.pem",
    }
    assert java_settings(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="me" password="a\\"b\\\\c";'
        ),
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }


def test_a_login_by_tokens_has_its_own_settings_for_java() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.config": "a=b",
        "oauth_cb": "tokens.of_ours",
    }
    with pytest.raises(UsageError, match=r"SHARDPOST_KAFKA__JAVA_SASL_JAAS_CONFIG .*: expected"):
        java_settings(given)
    module = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    more = {"java.sasl.mechanism": "AWS_MSK_IAM", "java.sasl.jaas.config": module}
    assert java_settings(given | more) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": module,
    }


def test_a_callback_is_a_function_and_what_is_for_java_is_not_given_to_librdkafka() -> None:
    given = {"oauth_cb": "json.dumps", "java.sasl.mechanism": "AWS_MSK_IAM"}
    assert librdkafka_settings(given) == {"oauth_cb": json.dumps}
    for path in ("json.no_such", "no_such_module.token", "no path"):
        with pytest.raises(UsageError, match=f"SHARDPOST_KAFKA__OAUTH_CB={path}: expected the pa"):
            librdkafka_settings({"oauth_cb": path})


PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"


def test_a_certificate_and_its_key_become_one_store_without_a_file(tmp_path: Path) -> None:
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.write_text("a chain")
    key.write_text(PRIVATE_KEY)
    made = {
        "ssl.keystore.certificate.chain": "a chain",
        "ssl.keystore.key": PRIVATE_KEY,
        "ssl.keystore.type": "PEM",
    }
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    assert java_settings(files) == made
    texts = {
        "ssl.certificate.pem": "a chain",
        "ssl.key.pem": PRIVATE_KEY,
        "ssl.ca.pem": "an issuer",
    }
    assert java_settings(texts) == made | {
        "ssl.truststore.certificates": "an issuer",
        "ssl.truststore.type": "PEM",
    }


def test_a_name_that_is_not_checked_is_not_by_java_either() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert java_settings({name: "none"}) == {name: ""}
    assert java_settings({name: "https"}) == {name: "https"}


def test_a_key_that_java_cannot_read_and_a_file_that_is_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"KEY_PEM: expected a key in PKCS #8 .*openssl pkcs8"):
        java_settings({"ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----\nsecret"})
    missing = {"ssl.certificate.location": str(tmp_path / "none.pem")}
    with pytest.raises(UsageError, match=r"none\.pem: cannot be read: No such file"):
        java_settings(missing)


def test_a_setting_that_java_does_not_have_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match="SHARDPOST_KAFKA__QUEUE_BUFFERING_MAX_MS"):
        java_settings({"queue.buffering.max.ms": "5"})
