"""What `shardpost doctor` says of topics, stores and tables."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from shardpost import tables
from shardpost.alerts import history
from shardpost.alerts.model.alert import Condition, Firing
from shardpost.dead_letters.model.letter_format import LetterState
from shardpost.dead_letters.model.letter_history import Step
from shardpost.delta import snapshots
from shardpost.delta.snapshot import Counts, Scattered, Snapshot
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from shardpost.topics.guards import require_stores
from shardpost.topics.model.finding import Severity
from shardpost.values.holding_rule import Rule
from shardpost.watch import audit, table_checks
from shardpost.watch.model.doctor_finding import DoctorFinding
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.refusing_kafka import refuse

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _kafka_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "broker_level", lambda _settings, _seconds: 29)


def found(settings: Settings, check: str) -> DoctorFinding:
    [one] = [one for one in audit.check_kafka(installed(settings), NOW) if one.check == check]
    return one


def wrong(kafka: MemoryKafka) -> list[DoctorFinding]:
    found = audit.check_kafka(installed(kafka.settings), NOW)
    return [one for one in found if one.state in ("warning", "error")]


def test_topics_as_they_are_created_are_as_declared(kafka: MemoryKafka) -> None:
    assert wrong(kafka) == []
    assert not (kafka.settings.home / "stores").exists()


def test_letters_that_are_parked_are_counted(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(kafka.settings, "letters").found == "0 waiting for a retry, 0 parked"
    states = (LetterState.WAITING, LetterState.PARKED, LetterState.PARKED)
    steps = [create_autospec(Step, instance=True, state=one, is_in_topic=True) for one in states]
    monkeypatch.setattr(tables, "letters", lambda *_, **__: steps)
    [parked] = wrong(kafka)
    assert (parked.found, parked.cure) == (
        "1 waiting for a retry, 2 parked",
        "shardpost letters list --state parked",
    )


def alerts(settings: Settings) -> list[tuple[str, str]]:
    return [(one.state, one.found) for one in table_checks.check_alerts(installed(settings), NOW)]


def test_a_refused_alert_url_is_an_error_that_shows_no_secret_and_what_fires_is_counted(
    settings: Settings,
) -> None:
    none = "no channel (SHARDPOST_ALERTS): alerts are only in alerts.log"
    assert alerts(settings) == [("ok", none), ("ok", "0 firing")]
    refused = settings.model_copy(update={"alerts": "nonsense://hush-hush json://localhost/x"})
    (state, said), _ = alerts(refused)
    assert state == "error"
    assert re.match("SHARDPOST_ALERTS: 1: nonsense #[0-9a-f]{4}: Apprise refuses this URL", said)
    assert "hush" not in said

    def fire(*firing: Firing) -> None:
        history.store_firing(
            installed(settings).tables, history.list_firing(installed(settings).tables), firing, NOW
        )

    of_kafka = Condition("few-brokers", "", Severity.RISK, "t", "m", "kafka")
    other = replace(of_kafka, rule="emails-open", subject="2026-W47", source="emails")
    fire(Firing(of_kafka, NOW))
    elsewhere = "; each is silenced, or a finding of another check here"
    assert alerts(settings)[1] == ("ok", f"1 firing: few-brokers{elsewhere}")
    fire(Firing(of_kafka, NOW), Firing(other, NOW))
    both = ": emails-open:2026-W47, few-brokers"
    assert alerts(settings)[1] == ("warning", f"2 firing{both}")
    later = NOW + timedelta(hours=1)
    fire(Firing(of_kafka, NOW), Firing(other, NOW, silenced_until=later))
    assert alerts(settings)[1] == ("ok", f"2 firing, 1 of them silenced{both}{elsewhere}")


def test_topics_that_were_created_with_another_number_of_partitions_are_named(
    kafka: MemoryKafka,
) -> None:
    def said(partitions: int) -> str:
        settings = kafka.settings.model_copy(update={"partitions": partitions})
        return found(settings, "topics").found

    assert said(2).endswith("exist as declared")
    assert "SHARDPOST_PARTITIONS=4, which applies to new topics: " in said(4)
    assert said(4).endswith(" has 2")


def test_a_missing_topic_is_named_once_with_the_command_that_creates_it(
    kafka: MemoryKafka,
) -> None:
    kafka.broker.delete_topic("parking-lot")
    [found] = wrong(kafka)
    assert (found.found, found.cure) == ("missing: parking-lot", "shardpost topics apply")


def test_an_input_that_kafka_deletes_from_is_an_error_with_its_command(kafka: MemoryKafka) -> None:
    kafka.broker.topics["clients"].config = {"cleanup.policy": "delete"}
    [found] = wrong(kafka)
    assert (found.check, found.state) == ("topic clients", "error")
    assert found.found == "cleanup.policy=delete"
    assert found.cure
    assert found.cure.endswith("--entity-name clients --add-config cleanup.policy=compact")


def test_what_is_at_risk_is_a_warning_and_a_mere_departure_is_not_named(
    kafka: MemoryKafka,
) -> None:
    def of(topic: str, setting: str, value: str) -> list[str]:
        there = kafka.broker.topics[topic]
        before, there.config = there.config, {**there.config, setting: value}
        found = [f"{one.check} {one.state}: {one.found}" for one in wrong(kafka)]
        there.config = before
        return found

    assert of("positions", "min.compaction.lag.ms", "90000000") == []
    assert of("positions", "min.compaction.lag.ms", "0") == [
        "topic positions warning: min.compaction.lag.ms=0"
    ]
    assert of("share-holders", "compression.type", "producer") == []
    assert of("positions", "cleanup.policy", "compact,delete") == [
        "topic positions error: cleanup.policy=compact,delete"
    ]


def test_a_file_of_topics_that_is_wrong_is_an_error(kafka: MemoryKafka, tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: {position: {}}")
    settings = kafka.settings.model_copy(update={"topics_file": file})
    one = found(settings, "topics")
    assert (one.state, "topics.position" in one.found) == ("error", True)


def test_run_topics_of_different_sizes_are_an_error(kafka: MemoryKafka) -> None:
    logs = kafka.broker.topics["run-requests"].logs
    logs.append(type(logs[0])())
    [found] = wrong(kafka)
    assert (found.check, found.found, found.expected) == (
        "topic run-commands",
        "partitions=2",
        "3, as run-requests has (no run is started on request)",
    )


def test_keys_in_several_partitions_are_named_for_a_week(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(ago: timedelta) -> list[DoctorFinding]:
        scattered = {"positions": Scattered(3, NOW - ago, 7, ("1", "2"))}
        made = Snapshot(
            7, NOW, NOW, {}, {}, Counts(), Rule("US"), 2, "1", "run", scattered=scattered
        )
        monkeypatch.setattr(snapshots, "newest", lambda _: made)
        return [*audit.check_topics(installed(kafka.settings), NOW)]

    [found] = named(timedelta(days=6))
    assert (found.check, found.state) == ("topic positions", "warning")
    assert "7 keys, such as 1, 2, by snapshot 3 of" in found.found
    assert [one.check for one in named(timedelta(days=7))] == ["topics"]


def test_a_store_that_was_recreated_is_an_error_and_stays_one(kafka: MemoryKafka) -> None:
    require_stores(installed(kafka.settings), "dead-letters")
    config = kafka.broker.topics["dead-letters"].config
    kafka.broker.delete_topic("dead-letters")
    kafka.broker.create_topic("dead-letters", 2, config)
    for _ in range(2):
        [found] = wrong(kafka)
        assert found.check == "store dead-letters"
        assert "it was deleted and created again" in found.found


def test_what_a_compaction_would_refuse_is_said_before(kafka: MemoryKafka) -> None:
    assert (
        audit.check_inputs(installed(kafka.settings), NOW).found
        == "15 offsets not yet in a snapshot"
    )
    kafka.broker.log(TopicPartition("exchanges", 0)).delete_before(1)
    assert (
        audit.check_inputs(installed(kafka.settings), NOW).state == "ok"
    )  # nothing was read of it before
    kafka.broker.delete_topic("exchanges")
    assert "has no topic exchanges" in found(kafka.settings, "inputs").found


def test_damaged_tables_keep_no_check_of_kafka_from_being_made(kafka: MemoryKafka) -> None:
    log = kafka.settings.home / "tables" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{")
    made = {one.check: one.state for one in audit.check_kafka(installed(kafka.settings), NOW)}
    assert (made["topics"], made["store dead-letters"], made["inputs"]) == ("ok", "ok", "error")
    found = audit.audit(installed(kafka.settings), NOW)
    assert ("unknown", "tables") in {(one.rule, one.setting) for one in found}


def test_without_tables_the_cure_is_a_compaction(settings: Settings) -> None:
    assert snapshots.newest(installed(settings).tables) is None
    [found] = table_checks.check_snapshot(installed(settings), NOW)
    assert (found.state, found.cure) == ("warning", "shardpost compact")


def test_tables_that_are_damaged_are_an_error_with_the_way_back(settings: Settings) -> None:
    log = settings.home / "tables" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{")
    [found] = table_checks.check_snapshot(installed(settings), NOW)
    assert found.state == "error"
    assert found.cure
    assert "docs/operations.md" in found.cure


def test_a_topic_whose_settings_may_not_be_read_is_unknown(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "describe_configs", "retries")
    one = found(kafka.settings, "topic retries")
    assert one.state == "unknown"
    assert "not authorized: requires permission DescribeConfigs on the topic" in one.found
