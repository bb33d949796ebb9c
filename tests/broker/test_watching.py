"""What the watch finds in a real broker and real tables."""

from datetime import UTC, datetime, timedelta

import pytest

from shardpost.alerts.model.alert import AlertState
from shardpost.kafka.records import Outgoing, TopicPartition, partition_of
from shardpost.locks.locks import exclusive
from shardpost.settings import Settings
from shardpost.watch import watch
from shardpost.watch.model.conditions import Observations
from shardpost.watch.watch import SOURCES, watch_once
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support import broker_process, written_weeks
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import (
    START,
    apply_topics_with_given_times,
    at,
    failed,
    original,
    put,
    sweep,
)
from tests.support.open_metrics import metric_families

WEEK = IsoWeek.parse("2026-W47")
HOUR = timedelta(hours=1)
# Kafka itself, which is not this test's own.
SHARED = ("kafka", "lag")


@pytest.fixture
def ready(settings: Settings) -> Settings:
    made = settings.model_copy(
        update={"partitions": 2, "retry_attempts": 1, "retry_jitter": 0.0, "kafka_timeout": 10.0}
    )
    apply_topics_with_given_times(made)
    return made


def look(settings: Settings, now: datetime) -> Observations:
    """Look at all that is this test's own."""
    return watch.collect_all(
        installed(settings), now, {name: SOURCES[name] for name in SOURCES.keys() - SHARED}
    )


def values(found: Observations, name: str) -> dict[str, float]:
    """Return {label: value} of a metric; the label "" of one without."""
    return {
        next(iter(one.labels.values()), ""): one.value for one in found.measures if one.name == name
    }


def rules(found: Observations) -> set[tuple[str, str]]:
    return {(one.rule, one.subject) for one in found.conditions}


def test_nothing_is_wrong_with_what_is_new(ready: Settings) -> None:
    found = look(ready, START)
    assert (found.conditions, found.unmeasured) == ([], set())
    assert set(values(found, "source_up").values()) == {1}
    assert values(found, "letters") == {"waiting": 0, "parked": 0}
    assert values(found, "snapshot_age_seconds") == {}


def test_letters_that_wait_for_too_long_and_parked_ones_are_found(ready: Settings) -> None:
    put(ready, [failed(ready, original(1, b"a")), failed(ready, original(2, b"b"), when=at(600))])
    early = look(ready, at(30))
    assert values(early, "letters") == {"waiting": 2, "parked": 0}
    assert values(early, "letter_overdue_seconds") == {"": 0}
    assert rules(early) == set()
    late = look(ready, at(3700))
    assert values(late, "letter_overdue_seconds") == {"": 3640}
    assert values(late, "letter_age_seconds") == {"waiting": 3700}
    assert rules(late) == {("letters-overdue", "")}
    sweep(ready.model_copy(update={"retry_attempts": 0}), at(3700))
    parked = look(ready, at(3800))
    assert values(parked, "letters") == {"waiting": 0, "parked": 2}
    assert rules(parked) == {("letters-parked", "positions")}


def test_unknown_and_failed_mails_are_found_once_nobody_sends(ready: Settings) -> None:
    now = WEEK.end + HOUR
    clients = [f"client{number}" for number in range(8)]
    written_weeks.begin(ready, WEEK, now)
    written_weeks.freeze(ready, WEEK, clients, now)
    states = [DeliveryState.SENT, DeliveryState.SENDING, *[DeliveryState.FAILED] * 6]
    for client, state in zip(clients, states, strict=True):
        written_weeks.record(ready, WEEK, client, state)
    with exclusive(installed(ready).files, f"weekly_email-{WEEK}-1", "a send"):
        busy = look(ready, now)
    assert rules(busy) == set()
    assert busy.unmeasured == {"emails"}
    found = look(ready, now)
    expected = {"sent": 1, "failed": 6, "unknown": 1, "suppressed": 0, "open": 0}
    counts = {one.labels["state"]: one.value for one in found.measures if one.name == "emails"}
    assert counts == expected
    assert rules(found) == {("emails-unknown", str(WEEK)), ("emails-failed", str(WEEK))}


def test_a_run_that_never_ends_is_found(ready: Settings) -> None:
    value = (
        b'{"State":"started","Dag":"weekly_email","Conf":{},"RequestedBy":"a",'
        b'"RequestOffset":0,"RunId":"run1"}'
    )
    put(ready, [Outgoing(ready.topic("run-commands"), b"key1", value, [])])
    now = datetime.now(UTC)
    assert rules(look(ready, now)) == set()
    found = look(ready, now + 25 * HOUR)
    assert rules(found) == {("run-age", "key1")}
    assert values(found, "runs") == {"issued": 0, "started": 1, "unreadable": 0}
    assert values(found, "run_age_seconds")[""] >= 24 * 3600


def test_an_old_snapshot_and_the_sizes_of_tables_are_found(ready: Settings) -> None:
    looked_at = datetime.now(UTC) - 2 * HOUR
    written_weeks.hold(ready, ["a", "b"], {"a": "a@x.example"}, looked_at)
    found = look(ready, looked_at + HOUR)
    assert rules(found) == set()
    assert values(found, "snapshot_age_seconds") == {"": 3600}
    late = look(ready, looked_at + 2 * HOUR)
    assert rules(late) == {("snapshot-age", "")}
    assert values(late, "table_bytes")["clients"] > 0
    assert values(late, "table_rows")["clients"] == 1
    assert values(late, "disk_free_bytes")[""] > 0


def test_a_broker_that_is_away_is_told_and_the_tables_are_measured(ready: Settings) -> None:
    written_weeks.hold(ready, ["a"], {}, datetime.now(UTC))
    away = ready.model_copy(update={"bootstrap_servers": "127.0.0.1:1", "kafka_timeout": 1.0})
    found = look(away, datetime.now(UTC))
    away_too = ("letters", "runs", "share-holders")
    assert rules(found) == {("not-measured", name) for name in away_too}
    assert values(found, "snapshot_age_seconds")


def test_the_command_prints_open_metrics(ready: Settings, shardpost: CommandLine) -> None:
    families = metric_families(shardpost("metrics"))
    assert {one.value for one in families["shardpost_source_up"].samples} == {1}
    assert families["shardpost_letters"].samples


def of_group(settings: Settings, group: str, now: datetime) -> list[tuple[str, str]]:
    """Return the rules and subjects of what is found of a group."""
    found = watch.collect_all(installed(settings), now, {"lag": SOURCES["lag"]})
    return [
        (one.rule, one.subject) for one in found.conditions if one.subject.startswith(f"{group} ")
    ]


def test_a_reader_that_loses_data_is_found_before_and_after(ready: Settings) -> None:
    topic = ready.topic("run-requests")
    group, at_first = f"group-of-{topic}", TopicPartition(topic, partition_of("k", 2))
    configure_topic(ready, topic, {"retention.ms": str(24 * 3_600_000)})
    put(ready, [Outgoing(topic, b"k", b"%d" % number, []) for number in range(5)])
    broker_process.commit(ready, (group, at_first, 0))
    now = datetime.now(UTC)
    assert of_group(ready, group, now) == []
    later = now + 13 * HOUR  # of the day that it is kept, less than twelve hours are left
    assert of_group(ready, group, later) == [("time-to-loss", f"{group} {topic}")]
    assert of_group(ready, group, later + 12 * HOUR) == [("data-lost", f"{group} {topic}")]
    broker_process.commit(ready, (group, at_first, 5))
    assert of_group(ready, group, later) == []


def test_the_watch_measures_kafka_itself_and_its_readers(ready: Settings) -> None:
    watched = watch_once(installed(ready), datetime.now(UTC))
    assert watched.observations.unmeasured == set()
    found = {one.rule for one in watched.observations.conditions}
    assert "few-brokers" in found
    assert "not-measured" not in found
    assert values(watched.observations, "audit_findings")["risk"] >= 1
    again = watch_once(installed(ready), datetime.now(UTC))
    told = {one.condition.rule for one in again.notified.alerts if one.state is AlertState.FIRING}
    assert "few-brokers" not in told
