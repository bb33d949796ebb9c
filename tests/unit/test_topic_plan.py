"""What `topics apply` changes and leaves alone, and the rules of the audit, each alone."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.topics.declared import DECLARED, OWN_STORES
from shardpost.topics.model.audit import findings
from shardpost.topics.model.cluster import (
    IN_SYNC,
    Behind,
    Built,
    Cluster,
    Expected,
    FoundTopic,
    Partition,
    Setting,
    Unknown,
    View,
    with_in_sync,
)
from shardpost.topics.model.departures import AT_LEAST, POLICY, departures, is_as_declared, policies
from shardpost.topics.model.finding import Finding, Severity
from shardpost.topics.model.plan import Step, TopicPlan, plan_changes

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
BROKERS = frozenset({1, 2, 3})
BOOTSTRAP = "kafka:9092"
SAFE = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}
NUMBERS = st.sampled_from(["-1", "0", "1", "1000", "86400000", "604800000", "9223372036854775807"])
POLICIES = st.sampled_from(["compact", "delete", "compact,delete", "delete,compact"])
VALUES = {
    POLICY: POLICIES,
    "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
    "unclean.leader.election.enable": st.sampled_from(["true", "false"]),
    IN_SYNC: st.sampled_from(["1", "2", "3"]),
    "segment.ms": NUMBERS,
    "retention.ms": NUMBERS,
    "retention.bytes": NUMBERS,
    "delete.retention.ms": NUMBERS,
    "min.compaction.lag.ms": NUMBERS,
    "max.compaction.lag.ms": NUMBERS,
    "max.message.bytes": NUMBERS,
    "flush.ms": NUMBERS,
}
CONFIGS = st.fixed_dictionaries({}, optional=VALUES)
FULL = st.fixed_dictionaries(VALUES)
REPLICAS = st.sampled_from([(1,), (1, 2), (1, 2, 3)])


def topic(
    config: Mapping[str, str] = SAFE, partitions: int = 2, replicas: tuple[int, ...] = (1, 2, 3)
) -> FoundTopic:
    """Return a topic whose replicas are all in sync."""
    one = Partition(replicas[0], replicas, replicas)
    settings = {name: Setting(value, "topic") for name, value in config.items()}
    return FoundTopic((one,) * partitions, settings)


def cluster(*names: str, **topics: FoundTopic) -> Cluster:
    """Return a cluster of three brokers with these topics; those that are only named are right."""
    return Cluster("c", BROKERS, {**dict.fromkeys(names, topic()), **topics})


def view(found: Cluster, *expected: Expected, **more: Any) -> View:
    """Return what the rules look at."""
    return View(found, expected, BOOTSTRAP, NOW, **more)


def changed(found: FoundTopic, plan: TopicPlan) -> FoundTopic:
    """Return a topic after what a plan changes of it."""
    config = {**(found.config or {})}
    config |= {name: Setting(value, "topic") for name, value in plan.configs.items()}
    missing = plan.partitions - len(found.partitions)
    return replace(
        found, config=config, partitions=found.partitions + found.partitions[:1] * missing
    )


def planned(expected: Expected, found: FoundTopic, partitions: int = 8) -> TopicPlan:
    [one] = plan_changes(
        [expected], Cluster("c", BROKERS, {"t": found}), bootstrap=BOOTSTRAP, partitions=partitions
    )
    return one


def why(expected: Expected, found: FoundTopic) -> str:
    [refusal] = planned(expected, found).refusals
    return str(refusal.why)


@given(CONFIGS, FULL, REPLICAS, st.booleans())
def test_each_departure_is_changed_or_refused_and_a_second_plan_changes_nothing(
    wanted: dict[str, str], there: dict[str, str], replicas: tuple[int, ...], is_store: bool
) -> None:
    expected = Expected("t", wanted, 1, is_own_store=is_store)
    found = topic(there, replicas=replicas)
    first = planned(expected, found)
    named = [one.setting for one in first.changes] + [one.setting for one in first.refusals]
    assert sorted(named) == sorted(departures(expected, found))
    after = changed(found, first)
    second = planned(expected, after)
    assert second.changes == []
    assert {one.setting for one in second.refusals} == {one.setting for one in first.refusals}
    for one in first.changes:
        assert is_as_declared(one.setting, wanted[one.setting], str(after.value(one.setting)))


@given(CONFIGS, FULL, REPLICAS, st.booleans())
def test_no_change_keeps_less_takes_less_or_deletes_what_was_not_deleted(
    wanted: dict[str, str], there: dict[str, str], replicas: tuple[int, ...], is_store: bool
) -> None:
    made = planned(Expected("t", wanted, 1, is_own_store=is_store), topic(there, replicas=replicas))
    for one in made.changes:
        if one.setting in AT_LEAST:
            assert int(one.expected) == -1 or -1 < int(one.found) < int(one.expected)
        if one.setting == POLICY:
            assert "delete" not in policies(one.expected) - policies(one.found)
            assert is_store or policies(one.expected) < policies(one.found)
        if one.setting == IN_SYNC:
            assert int(one.expected) < len(replicas)
        assert one.setting != "flush.ms"
        assert (one.setting, one.expected) != ("unclean.leader.election.enable", "true")


@pytest.mark.parametrize(
    ("found", "wanted", "is_store", "is_changed"),
    [
        ("delete", "compact", True, True),
        ("delete", "compact", False, False),
        ("compact,delete", "compact", False, True),
        ("delete,compact", "delete", False, True),
        ("compact", "delete", True, False),
        ("compact", "compact,delete", True, False),
    ],
)
def test_a_policy_is_changed_only_towards_less_that_is_removed(
    found: str, wanted: str, is_store: bool, is_changed: bool
) -> None:
    made = planned(
        Expected("t", {POLICY: wanted}, 1, is_own_store=is_store), topic({POLICY: found})
    )
    assert bool(made.changes) is is_changed
    assert bool(made.refusals) is not is_changed


def test_replicas_in_sync_are_raised_only_where_one_broker_may_be_away() -> None:
    expected = Expected("t", {IN_SYNC: "2"}, 1)
    assert planned(expected, topic({IN_SYNC: "1"})).configs == {IN_SYNC: "2"}
    assert "add replicas first" in why(expected, topic({IN_SYNC: "1"}, replicas=(1, 2)))
    one_left = topic({IN_SYNC: "1"})
    [partition, *_] = one_left.partitions
    partition = type(partition)(1, (1, 2, 3), (1,))
    alone = FoundTopic((partition,), one_left.config)
    assert "only 1 replica is in sync" in why(expected, alone)


def test_replicas_are_added_by_a_person_with_the_command_at_hand() -> None:
    [refusal] = planned(Expected("t", {}, 3), topic(replicas=(2,))).refusals
    assert (refusal.setting, refusal.found, refusal.expected) == ("replication.factor", "1", "3")
    document = json.loads(refusal.fix.split("<(echo '")[1].removesuffix("')"))
    assert document["partitions"] == [
        {"topic": "t", "partition": 0, "replicas": [2, 1, 3]},
        {"topic": "t", "partition": 1, "replicas": [2, 3, 1]},
    ]


def test_partitions_of_keyed_topics_stay_and_none_are_removed() -> None:
    free = Expected("t", {}, 1, 3, keyed=False)
    assert planned(free, topic()).partitions == 3
    assert planned(free, topic()).adds_partitions
    assert "two partitions" in why(Expected("t", {}, 1, 3), topic())
    assert "removes no partitions" in why(Expected("t", {}, 1, 1, keyed=False), topic())
    assert planned(Expected("t", {}, 1), topic()).refusals == []  # nothing is declared of it


def test_settings_that_kafka_does_not_say_are_left_alone_and_named() -> None:
    unread = FoundTopic(topic().partitions, None, "not authorized")
    assert planned(Expected("t", {POLICY: "compact"}, 1), unread).refusals == [
        Step(
            "settings",
            "unknown",
            "as declared",
            "not authorized",
            "grant this user DescribeConfigs on this topic",
        )
    ]


def test_a_new_topic_has_the_partitions_of_the_largest_that_it_goes_with() -> None:
    def count(*expected: Expected, **there: FoundTopic) -> int:
        made = plan_changes(expected, cluster(**there), bootstrap=BOOTSTRAP, partitions=8)
        return next(one.partitions for one in made if one.topic == "new")

    new = Expected("new", {}, 1, partitions_as=("a", "b"))
    assert count(new) == 8
    assert count(new, a=topic(partitions=3)) == 8  # b will have the default
    assert count(new, a=topic(partitions=3), b=topic(partitions=5)) == 5
    assert count(new, Expected("a", {}, 1, 12), b=topic(partitions=5)) == 12
    assert count(Expected("new", {}, 1, 2, ("a",)), a=topic(partitions=3)) == 2


def test_three_replicas_are_declared_with_two_in_sync() -> None:
    assert with_in_sync({"a": "1"}, 3) == {"a": "1", IN_SYNC: "2"}
    assert with_in_sync({}, 2) == {}
    assert with_in_sync({IN_SYNC: "3"}, 5) == {IN_SYNC: "3"}


def test_what_shardpost_alone_writes_is_compacted_and_dead_letters_are_of_others() -> None:
    assert {spec.config[POLICY] for spec in DECLARED if spec.name in OWN_STORES} == {"compact"}
    assert "dead-letters" not in OWN_STORES


POSITIONS = Expected("positions", SAFE, 3, product="positions")
RIGHT = cluster("positions", "__consumer_offsets", "__transaction_state")


def brokers(found: Cluster, **settings: str) -> Cluster:
    """Return the cluster whose brokers all have these settings, dots for underscores."""
    config = {name.replace("_", "."): Setting(value, "broker") for name, value in settings.items()}
    return replace(found, configs=dict.fromkeys(found.brokers, config))


def with_positions(found: FoundTopic) -> Cluster:
    return replace(RIGHT, topics={**RIGHT.topics, "positions": found})


def only(found: View) -> Finding:
    [one] = findings(found)
    return one


def test_nothing_is_found_where_all_is_right() -> None:
    assert findings(view(RIGHT, POSITIONS)) == []


def state(leader: int, in_sync: tuple[int, ...]) -> FoundTopic:
    damaged = Partition(leader, (1, 2, 3), in_sync)
    return replace(topic(), partitions=(topic().partitions[0], damaged))


@pytest.mark.parametrize(
    ("found", "rule", "severity"),
    [
        (topic(SAFE | {"cleanup.policy": "delete"}), "cleanup-policy", "loss"),
        (topic(SAFE | {IN_SYNC: "1"}), "min-insync-replicas", "risk"),
        (topic(SAFE | {"unclean.leader.election.enable": "true"}), "unclean-election", "risk"),
        (topic(replicas=(1,)), "replication-factor", "risk"),
        (topic(replicas=(1, 2)), "replication-factor", "risk"),
        (state(-1, (1,)), "offline-partitions", "loss"),
        (state(1, (1,)), "under-min-insync", "risk"),
        (state(1, (1, 3)), "under-replicated", "risk"),
    ],
)
def test_a_topic_that_departs_is_found_alone(found: FoundTopic, rule: str, severity: str) -> None:
    one = only(view(with_positions(found), POSITIONS))
    assert (one.rule, one.severity, one.topic) == (rule, severity, "positions")


def test_a_missing_topic_is_worse_where_kafka_creates_it_by_itself() -> None:
    without = replace(RIGHT, topics={})
    known = brokers(without, auto_create_topics_enable="false")
    assert [one.severity for one in findings(view(known, POSITIONS))] == ["risk"]
    creating = brokers(without, auto_create_topics_enable="true")
    assert [one.severity for one in findings(view(creating, POSITIONS))] == ["loss"]
    assert findings(view(brokers(RIGHT, auto_create_topics_enable="true"), POSITIONS)) == []


def test_one_broker_is_one_finding_whatever_its_topics_have() -> None:
    single = topic(SAFE | {IN_SYNC: "1"}, replicas=(1,))
    names = ("positions", "__consumer_offsets", "__transaction_state")
    alone = Cluster("c", frozenset({1}), dict.fromkeys(names, single))
    one = only(view(brokers(alone, offsets_topic_replication_factor="1"), POSITIONS))
    assert (one.rule, one.topic, one.found) == ("few-brokers", None, "1, on 1 broker")


def test_a_cluster_of_three_of_which_one_is_away_has_three() -> None:
    away = replace(RIGHT, brokers=frozenset({1, 2}))
    assert findings(view(away, POSITIONS)) == []
    one = only(view(replace(with_positions(state(1, (1, 2))), brokers=away.brokers), POSITIONS))
    assert one.fix == "start broker 3"


def test_a_topic_of_ones_own_may_be_declared_with_one_replica() -> None:
    found = replace(RIGHT, topics={**RIGHT.topics, "scratch": topic({}, replicas=(2,))})
    assert findings(view(found, POSITIONS, Expected("scratch", {}, 1))) == []
    one = only(view(found, POSITIONS, Expected("scratch", {}, 2)))
    assert (one.rule, one.expected) == ("replication-factor", "2")


def test_kafkas_own_topics_are_looked_at() -> None:
    found = replace(RIGHT, topics={**RIGHT.topics, "__consumer_offsets": topic(SAFE, 2, (1,))})
    one = only(view(found, POSITIONS))
    assert (one.rule, one.topic) == ("replication-factor", "__consumer_offsets")


def test_what_brokers_forget_is_found() -> None:
    short = brokers(RIGHT, offsets_retention_minutes="1440")
    assert only(view(short, POSITIONS)).rule == "offsets-retention"
    enough = brokers(RIGHT, offsets_retention_minutes="10080")
    assert findings(view(enough, POSITIONS)) == []
    assert only(view(enough, POSITIONS, request_days=30)).expected == "44640 or more"


def test_a_release_that_loses_is_found_and_an_unknown_one_is_not() -> None:
    one = only(view(replace(RIGHT, releases={1: "4.2", 2: "4.3 or newer", 3: None}), POSITIONS))
    assert (one.rule, one.found) == ("kafka-version", "Kafka 4.3 or newer, on broker 2")
    assert "KAFKA-20734" in one.why


@pytest.mark.parametrize(("minutes", "hangs"), [(14, False), (16, True), (-14, False)])
def test_a_transaction_hangs_once_no_broker_would_let_it_be(minutes: int, hangs: bool) -> None:
    since = NOW - timedelta(minutes=minutes)
    found = replace(RIGHT, behind=(Behind("positions", 1, 7, 9, since),))
    assert bool(findings(view(found, POSITIONS))) is hangs
    longer = brokers(found, transaction_max_timeout_ms="3600000")
    assert findings(view(longer, POSITIONS)) == []


@pytest.mark.parametrize("since", [None, NOW + timedelta(minutes=16)])
def test_a_transaction_whose_age_nobody_knows_is_told(since: datetime | None) -> None:
    found = replace(RIGHT, behind=(Behind("positions", 1, 7, 9, since),))
    one = only(view(found, POSITIONS))
    assert (one.rule, one.severity) == ("hanging-transaction", "risk")
    assert one.found == "partition 1: offset 7, 2 before the end, age unknown"
    assert "describe-producers --topic positions --partition 1; if it is not: kafka-tr" in one.fix


def test_tables_that_were_built_with_other_partitions_are_found() -> None:
    def severities(read: int, shards: int) -> list[tuple[str, str | None]]:
        there = replace(RIGHT, topics={**RIGHT.topics, "share-holders": topic(partitions=4)})
        built = Built(7, {"positions": read, "gone": 3}, "share-holders", shards)
        found = findings(view(there, POSITIONS, built=built))
        return [(one.severity, one.topic) for one in found]

    assert severities(2, 4) == []
    assert severities(3, 4) == [("loss", "positions")]
    assert severities(1, 4) == [("drift", "positions")]
    assert severities(2, 8) == [("risk", "share-holders")]


def test_keys_in_several_partitions_are_a_risk() -> None:
    built = Built(7, {}, "share-holders", 4, {"positions": "9 keys, such as 1, 2, by snapshot 7"})
    one = only(view(RIGHT, POSITIONS, built=built))
    assert (one.rule, one.severity, one.topic) == ("scattered-keys", "risk", "positions")
    assert one.found == "several, of 9 keys, such as 1, 2, by snapshot 7"
    assert "murmur2_random" in one.fix


def test_what_was_not_answered_is_never_silence() -> None:
    found = replace(RIGHT, unknown=(Unknown(None, "settings of broker 2", "not authorized"),))
    one = only(view(found, POSITIONS))
    assert (one.rule, one.severity, one.setting) == ("unknown", "risk", "settings of broker 2")
    assert "not authorized" in one.why
    unread = replace(topic(), config=None, unknown="timed out")
    assert findings(view(with_positions(unread), POSITIONS)) == []  # observation names it


@given(CONFIGS, FULL, REPLICAS)
def test_what_apply_is_said_to_mend_it_mends(
    wanted: dict[str, str], there: dict[str, str], replicas: tuple[int, ...]
) -> None:
    expected = Expected("positions", wanted, 1, product="positions")
    found = topic(there, replicas=replicas)
    before = findings(view(with_positions(found), expected))
    [made] = plan_changes([expected], with_positions(found), bootstrap=BOOTSTRAP, partitions=2)
    after = findings(view(with_positions(changed(found, made)), expected))
    mended = [one for one in before if one.fix == "shardpost topics apply"]
    assert sorted(map(repr, after)) == sorted(repr(one) for one in before if one not in mended)


def test_the_worst_comes_first_and_drift_alone_needs_no_attention() -> None:
    departed = with_positions(topic(SAFE | {"cleanup.policy": "delete", IN_SYNC: "1"}))
    found = findings(view(departed, POSITIONS))
    assert [one.severity for one in found] == ["loss", "risk"]
    drift = replace(found[0], severity=Severity.DRIFT)
    assert findings(view(departed, POSITIONS), (lambda _: iter([drift, *found]),))[-1] == drift
    assert [any(one.needs_attention for one in all_) for all_ in ([drift], found)] == [False, True]
