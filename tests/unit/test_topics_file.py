"""The file of topics, what is wrong with it, and `topics apply` where Kafka refuses a part."""

from pathlib import Path

import pytest

from shardpost.errors import ShardpostError, UsageError
from shardpost.settings import Settings
from shardpost.topics.creation import AppliedTopic, apply_topics, create_topics
from shardpost.topics.model.cluster import Expected
from shardpost.topics.topics_file import (
    NOTHING_DECLARED,
    TopicsFile,
    expected_topics,
    read_topics_file,
)
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.refusing_kafka import refuse

WHOLE = """\
# of production
cluster_id: 5L6g3nShT-eMCtK--X86sw
replication_factor: 3
topics:
  positions:
    partitions: 32
    config:
      retention.ms: -1
      preallocate: on
  share-holders:
own_topics:
  orders:
    keyed: false
    replication_factor: 1
    partitions: 4
    config: {cleanup.policy: "compact,delete"}
"""


def read(tmp_path: Path, text: str, **given: object) -> TopicsFile:
    file = tmp_path / "topics.yaml"
    file.write_text(text)
    return read_topics_file(installed(Settings(**given)).kafka, file)


def expected(tmp_path: Path, text: str, **given: object) -> dict[str, Expected]:
    settings = Settings(topics_file=tmp_path / "topics.yaml", **given)
    (tmp_path / "topics.yaml").write_text(text)
    return {one.name: one for one in expected_topics(installed(settings))[0]}


def test_no_file_and_an_empty_one_declare_nothing_else(tmp_path: Path) -> None:
    assert read_topics_file(installed(Settings()).kafka, None) == NOTHING_DECLARED
    assert read(tmp_path, "") == NOTHING_DECLARED
    assert read(tmp_path, "# nothing\ntopics:\n") == NOTHING_DECLARED


def test_what_is_declared_is_taken_as_it_is_written(tmp_path: Path) -> None:
    made = expected(tmp_path, WHOLE, topics={"positions": "pos"})
    positions = made["pos"]
    assert (positions.partitions, positions.replicas) == (32, 3)
    assert positions.config["retention.ms"] == "-1"
    assert positions.config["preallocate"] == "on"
    assert positions.config["min.compaction.lag.ms"] == "86400000"
    assert positions.config["min.insync.replicas"] == "2"
    orders = made["orders"]
    assert (orders.partitions, orders.replicas, orders.keyed) == (4, 1, False)
    assert orders.config == {"cleanup.policy": "compact,delete"}


def test_replicas_come_from_the_topic_then_the_file_then_the_setting(tmp_path: Path) -> None:
    text = "topics: {clients: {replication_factor: 5}}"
    made = expected(tmp_path, text, replication_factor=2)
    assert (made["clients"].replicas, made["positions"].replicas) == (5, 2)
    assert "min.insync.replicas" not in made["positions"].config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics:\n  position: {}", "line 2: topics.position: expected one of 'positions'"),
        ("partitions: 3", "line 1: partitions: unknown name"),
        (
            "topics:\n  positions:\n    partitions: many",
            "line 3: topics.positions.partitions: expected a whole number, found 'many'",
        ),
        ("topics:\n  clients:\n    partitions: 0", "partitions: expected a number from 1 on"),
        (
            "topics:\n  clients:\n    config:\n      retention_ms: 1",
            "line 4: topics.clients.config.retention_ms: expected a topic setting of Kafka",
        ),
        (
            "topics:\n  clients:\n    config:\n      retention.ms: [1]",
            "line 4: topics.clients.config.retention.ms: expected a single value, found ['1']",
        ),
        ("topics:\n  clients:\n    config:\n      retention.ms:", "expected a value, found none"),
        (
            "topics:\n  clients:\n    config:\n      retention.ms: 7d",
            "line 3: topics.clients.config: expected a whole number for retention.ms, found '7d'",
        ),
        (
            "own_topics:\n  o:\n    config: {cleanup.policy: 'compact,remove'}",
            "line 3: own_topics.o.config: expected compact or delete for cleanup.policy, found",
        ),
        ("topics: 3", "line 1: topics: expected a map of names, found '3'"),
        ("- a", "line 1: the file: expected a map of names, found ['a']"),
        ("topics: {}\ntopics: {}", "line 2: expected YAML: 'topics' appears twice"),
        (
            "topics: &a {}\nown_topics: *a",
            "line 1: expected YAML: an alias (`*`), which is not supported",
        ),
        ("topics: {[1]: 2}", "line 1: expected YAML: a list or a map as a name"),
        ("topics: {", "expected YAML"),
        ("own_topics: {__own: {}}", "own_topics.__own: expected a topic of your own"),
        ("own_topics:\n  o: {keyed: perhaps}", "line 2: own_topics.o.keyed: expected true or"),
        ("own_topics:\n  o: {keyed: yes}", "line 2: own_topics.o.keyed: expected true or false, "),
        ("own_topics:\n  o: {keyed: 1}", "own_topics.o.keyed: expected true or false, found '1'"),
        ("own_topics:\n  o: {keyed: on}", "own_topics.o.keyed: expected true or false, found 'on'"),
        ("own_topics:\n  o: {keyed: [1]}", "own_topics.o.keyed: expected true or false, found"),
        ("a: \x00", "expected YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_was_expected(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert str(tmp_path / "topics.yaml") in str(refused.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 1: a: .*; .*line 2: b: "):
        read(tmp_path, "a: 1\nb: 2")


MANY_FAULTS = """\
topcis: {}
replication_factor: 0
topics:
  position: {}
  clients:
    partitons: 3
    config:
      cleanup.policy: delete
      retention.ms: 7d
      unclean.leader.election.enable: no
own_topics:
  pos: {keyd: true, config: {cleanup.policy: compcat}}
"""


def test_faults_of_every_kind_are_said_at_once_in_their_order_and_with_what_was_meant(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, MANY_FAULTS, topics={"positions": "pos"})
    said = [one.removesuffix("; ") for one in str(refused.value).split(f"{tmp_path}/topics.yaml, ")]
    no_such = "unknown name: did you mean"
    lines = [int(one.split(":")[0].removeprefix("line ")) for one in said[1:]]
    assert lines == [1, 2, 4, 6, 7, 8, 12, 12, 12]
    for text, expected in (
        (said[1], f"line 1: topcis: {no_such} topics?"),
        (said[3], "found 'position': did you mean positions?"),
        (said[4], f"line 6: topics.clients.partitons: {no_such} partitions?"),
        (
            said[5],
            "for retention.ms, found '7d'; expected false or true for unclean.leader.election",
        ),
        (said[6], "line 8: topics.clients.config.cleanup.policy: expected compact, as Kafka would"),
        (said[7], "for cleanup.policy, found 'compcat': did you mean compact?"),
        (said[8], f"own_topics.pos.keyd: {no_such} keyed?"),
        (
            said[9],
            "own_topics.pos: expected a topic of your own, found the topic of `topics.positions`",
        ),
    ):
        assert expected in text


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_topics_file(installed(Settings()).kafka, tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_topics_file(installed(Settings()).kafka, tmp_path)
    (tmp_path / "latin").write_bytes(b"# \xe4")
    with pytest.raises(UsageError, match="UTF-8, found other bytes at byte 2"):
        read_topics_file(installed(Settings()).kafka, tmp_path / "latin")


def test_a_topic_of_ones_own_is_none_of_the_products_and_no_store_is_deleted_from(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"own_topics\.pos: .* `topics\.positions`"):
        expected(tmp_path, "own_topics: {pos: {}}", topics={"positions": "pos"})
    text = "topics: {clients: {config: {cleanup.policy: 'compact,delete'}}}"
    with pytest.raises(UsageError, match=r"topics\.clients\.config\.cleanup\.policy: .* compact"):
        expected(tmp_path, text)


def is_news(one: AppliedTopic) -> bool:
    return bool(one.created or one.starter or one.plan.changes or one.plan.refusals)


def damage(kafka: MemoryKafka, *topics: str) -> None:
    for topic in topics:
        there = kafka.broker.topics[topic]
        there.config = {**there.config, "retention.ms": "1"}


def test_what_is_refused_is_said_with_the_right_it_takes_and_the_rest_is_done(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(kafka, "retries", "decisions")
    refuse(monkeypatch, "incremental_alter_configs", "retries")
    with pytest.raises(ShardpostError) as refused:
        apply_topics(installed(kafka.settings))
    assert "topic retries: its settings cannot be changed: not authorized" in str(refused.value)
    assert str(refused.value).endswith(": allow AlterConfigs on it for this user")
    assert kafka.broker.topics["decisions"].config["retention.ms"] == "31536000000"


def test_a_topic_that_may_not_be_created_is_named(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.broker.delete_topic("clients")
    refuse(monkeypatch, "create_topics", "clients")
    with pytest.raises(ShardpostError, match=r"clients cannot be created: .*: allow Create on it"):
        apply_topics(installed(kafka.settings))


def test_a_topic_whose_settings_may_not_be_read_is_left_alone_and_named(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(kafka, "retries", "decisions")
    refuse(monkeypatch, "describe_configs", "retries")
    said = {
        one.plan.topic: one.as_text()
        for one in apply_topics(installed(kafka.settings))
        if is_news(one)
    }
    assert set(said) == {"retries", "decisions"}
    assert "settings is unknown, expected as declared: not authorized" in said["retries"]
    assert kafka.broker.topics["retries"].config["retention.ms"] == "1"


def test_topics_that_are_only_created_stay_as_they_are_once_they_exist(
    kafka: MemoryKafka,
) -> None:
    damage(kafka, "retries")
    kafka.broker.delete_topic("clients")
    created = create_topics(installed(kafka.settings))
    assert [one.plan.topic for one in created if is_news(one)] == ["clients"]
    assert kafka.broker.topics["retries"].config["retention.ms"] == "1"


def test_a_refusal_ends_with_3_and_a_dry_run_changes_nothing(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    damage(kafka, "retries")
    document = {one["topic"]: one for one in shardpost.json("topics", "apply", "--dry-run")}
    assert document["retries"]["changed"] == [
        {"setting": "retention.ms", "found": "1", "to": "604800000"}
    ]
    assert kafka.broker.topics["retries"].config["retention.ms"] == "1"
    kafka.broker.topics["clients"].config = {"cleanup.policy": "delete"}
    assert "not changed: cleanup.policy is delete" in shardpost("topics", "apply", code=3)
    assert kafka.broker.topics["retries"].config["retention.ms"] == "604800000"
