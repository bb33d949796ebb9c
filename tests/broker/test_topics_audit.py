"""`topics audit` on a real broker: what it finds as it is, and after each damage."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka.cimpl import NewPartitions

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.topics.model.finding import Finding
from shardpost.watch.audit import audit
from tests.support.broker_process import own_broker
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import configure_broker, configure_topic, wait_until_shown
from tests.support.transactions import begun_transaction

KEYS = ["severity", "topic", "setting", "found", "source", "expected", "why", "fix"]
ONE_BROKER = ("risk", None, "replication.factor")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with own_broker(tmp_path_factory.mktemp("audited"), partitions=2) as settings:
        yield settings


def found(settings: Settings, later: timedelta = timedelta(0)) -> list[Finding]:
    return audit(installed(settings), datetime.now(UTC) + later)


def besides_one_broker(settings: Settings) -> list[tuple[str, str | None, str, str, str]]:
    return [
        (one.rule, one.topic, one.setting, one.found, one.source)
        for one in found(settings)
        if one.rule != "few-brokers"
    ]


def test_on_one_broker_replication_is_the_one_finding_and_ends_with_3(own: Settings) -> None:
    command = CommandLineHere(own.environ())
    [one] = command.json("topics", "audit", code=3)
    assert list(one) == KEYS
    assert (one["severity"], one["topic"], one["setting"]) == ONE_BROKER
    assert one["found"] == "1, on 1 broker"
    assert "docs/runbook.md#few-brokers" in one["why"]
    said = command("topics", "audit", code=3)
    assert said.startswith("risk   replication.factor: 1, on 1 broker (cluster)\n")
    assert command.json("topics", "apply", "--dry-run") == [
        document | {"starter": 0} for document in command.json("topics", "apply")
    ]


@pytest.mark.parametrize(
    ("topic", "setting", "value", "rule", "expected"),
    [
        ("positions", "cleanup.policy", "delete", "cleanup-policy", "compact"),
        ("weekly-emails", "cleanup.policy", "compact,delete", "cleanup-policy", "compact"),
        ("retries", "retention.ms", "60000", "retention", "604800000"),
        ("decisions", "retention.bytes", "1000", "retention", "-1"),
        ("clients", "delete.retention.ms", "0", "tombstone-retention", "86400000"),
        ("positions", "min.compaction.lag.ms", "0", "compaction-lag", "86400000"),
        ("share-holders", "max.message.bytes", "1000", "message-size", "8388608"),
        ("dead-letters", "message.timestamp.type", "CreateTime", "timestamp-type", "LogAppendTime"),
        ("exchanges", "unclean.leader.election.enable", "true", "unclean-election", "false"),
        ("parking-lot", "segment.ms", "604800000", "other-setting", "21600000"),
    ],
)
def test_each_damage_is_found_alone_and_mended_by_what_it_names(
    own: Settings, topic: str, setting: str, value: str, rule: str, expected: str
) -> None:
    configure_topic(own, topic, {setting: value})
    [one] = [one for one in found(own) if one.rule != "few-brokers"]
    assert (one.rule, one.topic, one.setting, one.found) == (rule, topic, setting, value)
    assert one.source == "topic"
    if one.fix == "shardpost topics apply":
        apply_topics(installed(own))
    else:
        assert one.fix.endswith(f"--add-config {setting}={expected}")
        configure_topic(own, topic, {setting: expected})
    assert besides_one_broker(own) == []


def test_what_the_broker_sets_is_told_from_what_the_topic_sets(own: Settings) -> None:
    configure_broker(own, {"log.message.timestamp.type": "LogAppendTime"})
    own_file = own.home / "topics.yaml"
    own_file.write_text("topics: {clients: {config: {message.timestamp.type: CreateTime}}}")
    declared = own.model_copy(update={"topics_file": own_file})
    assert besides_one_broker(declared) == [
        ("timestamp-type", "clients", "message.timestamp.type", "LogAppendTime", "broker")
    ]
    configure_broker(own, {"log.message.timestamp.type": "CreateTime"})


def test_a_store_of_larger_letters_than_they_are_passed_on_is_found(own: Settings) -> None:
    configure_topic(own, "dead-letters", {"max.message.bytes": "9000000"})
    sized = [(one.rule, one.topic, one.expected.split(" ")[0]) for one in found(own)]
    configure_topic(own, "dead-letters", {"max.message.bytes": "2097152"})
    assert sized == [
        ("letter-sizes", "retries", "9065536"),
        ("letter-sizes", "parking-lot", "9065536"),
        ("few-brokers", None, "3,"),
    ]


def test_a_transaction_that_nobody_ends_is_found_with_the_command_that_does(own: Settings) -> None:
    hanging = begun_transaction(own, "hanging", **{"transaction.timeout.ms": 600_000})
    hanging.produce("clients", b"{}", b"c", 1)
    hanging.flush(20)
    assert besides_one_broker(own) == []  # it is open for a moment, which is no fault
    [one] = [one for one in found(own, timedelta(minutes=16)) if one.rule != "few-brokers"]
    assert (one.rule, one.severity, one.topic) == ("hanging-transaction", "risk", "clients")
    assert one.found.startswith("partition 1: offset 0, 1 before the end, since ")
    assert one.fix.endswith("abort --topic clients --partition 1 --start-offset 0")
    hanging.abort_transaction()
    assert [one.rule for one in found(own, timedelta(minutes=16))] == ["few-brokers"]


def test_run_topics_of_different_sizes_and_a_missing_topic_are_found(own: Settings) -> None:
    client = installed(own).kafka.admin()
    client.create_partitions([NewPartitions("run-requests", 3)])["run-requests"].result(20)
    wait_until_shown(own, "run-requests", 3)
    client.delete_topics(["decisions"])["decisions"].result(20)
    wait_for(lambda: "decisions" not in installed(own).kafka.metadata().topics, "the deletion")
    assert [(one.rule, one.topic) for one in found(own)] == [
        ("missing-topic", "decisions"),
        ("run-topics", "run-commands"),
        ("few-brokers", None),
    ]
    client.create_partitions([NewPartitions("run-commands", 3)])["run-commands"].result(20)
    apply_topics(installed(own))
    wait_for(lambda: besides_one_broker(own) == [], "topics as declared")
