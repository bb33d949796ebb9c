"""`topics apply` and `topics audit` on a cluster of three brokers."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost.errors import COULD_NOT
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.offsets import commit_offsets
from shardpost.lag.measure import measure
from shardpost.lag.model.time_to_loss import Lag, Selection
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.topics.model.finding import Finding
from shardpost.watch.audit import audit
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import configure_topic
from tests.support.three_brokers import ThreeBrokers, three_brokers

pytestmark = pytest.mark.one_of("three brokers")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with three_brokers(tmp_path_factory.mktemp("three")) as running:
        apply_topics(installed(running.settings))
        yield running


def found(cluster: ThreeBrokers) -> list[Finding]:
    return audit(installed(cluster.settings), datetime.now(UTC))


def said(cluster: ThreeBrokers) -> list[tuple[str, str | None, str]]:
    return [(one.severity, one.topic, one.setting) for one in found(cluster)]


def fixes(settings: Settings) -> dict[tuple[str | None, str], str]:
    """Return how each setting that was found wrong is mended."""
    return {
        (one.topic, one.setting): one.fix for one in audit(installed(settings), datetime.now(UTC))
    }


def test_a_fresh_cluster_has_nothing_to_find_also_of_kafkas_own_topics(
    cluster: ThreeBrokers,
) -> None:
    assert said(cluster) == []
    commit_offsets(installed(cluster.settings).kafka, "somebody", {"positions": {0: 0}})
    shown = installed(cluster.settings).kafka.admin().list_topics(timeout=20).topics
    assert {"__consumer_offsets", "__transaction_state"} <= shown.keys()
    wait_for(lambda: said(cluster) == [], "all replicas of the new topic")


def test_one_replica_and_an_unclean_election_are_found_and_apply_mends_what_it_may(
    cluster: ThreeBrokers,
) -> None:
    single = cluster.settings.model_copy(
        update={
            "topics": cluster.settings.topics | {"retries": "retries-once"},
            "replication_factor": 1,
        }
    )
    try:
        apply_topics(installed(single))
        configure_topic(single, "positions", {"unclean.leader.election.enable": "true"})
        configure_topic(single, "clients", {"min.insync.replicas": "1"})
        expected = {
            ("positions", "unclean.leader.election.enable"),
            ("clients", "min.insync.replicas"),
            ("retries-once", "replication.factor"),
        }
        # Each broker hears of a change in its own time, and any of them may be asked.
        wait_for(lambda: fixes(single).keys() == expected, "the three findings")
        mended = fixes(single)
        assert "kafka-reassign-partitions.sh" in mended["retries-once", "replication.factor"]
        assert "min.insync.replicas=2" in mended["clients", "min.insync.replicas"]
        apply_topics(installed(cluster.settings))
        wait_for(lambda: said(cluster) == [], "nothing to find")
    finally:
        client = installed(single).kafka.admin()  # it has to outlive what it does
        client.delete_topics(["retries-once"])["retries-once"].result(30)


def test_a_broker_that_is_away_is_found_and_forgotten_when_it_is_back(
    cluster: ThreeBrokers,
) -> None:
    commit_offsets(installed(cluster.settings).kafka, "somebody", {"positions": {0: 0}})
    wait_for(lambda: said(cluster) == [], "all replicas of Kafka's own topics")
    cluster.stop(3)
    try:
        ours = {"positions", "__consumer_offsets"}
        wait_for(lambda: ours <= {one.topic for one in found(cluster)}, "the findings")
        away = found(cluster)
        assert {(one.severity, one.rule) for one in away} == {("risk", "under-replicated")}
        assert {one.fix for one in away} == {"start broker 3"}
        configure_topic(cluster.settings, "clients", {"min.insync.replicas": "3"})
        wait_for(
            lambda: (
                ("under-min-insync", "clients") in {(one.rule, one.topic) for one in found(cluster)}
            ),
            "the topic that cannot be written to",
        )
    finally:
        cluster.start(3)
    configure_topic(cluster.settings, "clients", {"min.insync.replicas": "2"})
    wait_for(lambda: said(cluster) == [], "all replicas", seconds=60)


# Before and after the others find it gone, or if it is the one that is asked.
ANSWERS = (
    {"unknown"},
    {"unknown", "under-replicated"},
    {"under-replicated"},
    {"cannot be reached"},
)


def answer(settings: Settings) -> set[str]:
    """Return which rules found something, or why none could look."""
    try:
        return {one.rule for one in audit(installed(settings), datetime.now(UTC))}
    except KafkaUnreachableError:
        return {"cannot be reached"}


def test_a_broker_that_hangs_is_never_passed_over_in_silence(cluster: ThreeBrokers) -> None:
    hurried = cluster.settings.model_copy(update={"kafka_timeout": 3})
    pid = cluster.brokers[3].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert answer(hurried) in ANSWERS
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: said(cluster) == [], "all replicas", seconds=60)


def lag(cluster: ThreeBrokers) -> Lag:
    return measure(installed(cluster.settings), datetime.now(UTC), Selection(["reader"]))


def known(found: Lag) -> set[int]:
    """Return the partitions of which all is known."""
    return {row.partition for row in found.rows if row.records_behind == 1}


def test_lag_says_what_a_broker_that_is_away_keeps_from_it(cluster: ThreeBrokers) -> None:
    client = installed(cluster.settings).kafka.admin()
    placed = NewTopic("once", 3, replica_assignment=[[1], [2], [3]], config={"retention.ms": "-1"})
    client.create_topics([placed])["once"].result(30)
    wait_for(lambda: "once" in client.list_topics(timeout=20).topics, "the topic")
    writer = installed(cluster.settings).kafka.producer()
    for partition in range(3):
        writer.produce("once", b"x", b"k", partition)
    assert writer.flush(30) == 0
    # At one time: rows are in the order in which what is committed expires.
    commit_offsets(
        installed(cluster.settings).kafka, "reader", {"once": dict.fromkeys(range(3), 0)}
    )
    whole = lag(cluster)
    assert known(whole) == {0, 1, 2}
    assert whole.problems == []
    cluster.stop(3)
    try:
        looks: list[Lag] = []  # leaders may change again after one

        def are_known() -> bool:
            looks.append(lag(cluster))
            return known(looks[-1]) == {0, 1}

        wait_for(are_known, "the others")
        found = looks[-1]
        assert [row.partition for row in found.rows] == [0, 1, 2]
        assert found.rows[2].end is None
        assert any("once[2]" in problem for problem in found.problems)
        assert found.exit_code(1.0) == COULD_NOT
    finally:
        cluster.start(3)
    wait_for(lambda: known(lag(cluster)) == {0, 1, 2}, "all partitions", seconds=60)
