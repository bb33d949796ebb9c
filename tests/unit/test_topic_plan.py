"""What `topics apply` changes, what it leaves alone, and why."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.topics.declared import DECLARED, OWN_STORES
from shardpost.topics.model.cluster import IN_SYNC, Cluster, Expected, FoundTopic, with_in_sync
from shardpost.topics.model.plan import (
    AT_LEAST,
    POLICY,
    Refusal,
    TopicPlan,
    departures,
    is_as_declared,
    plan_changes,
    policies,
)
from tests.support.found_topics import BOOTSTRAP, BROKERS, changed, cluster, topic

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


def planned(expected: Expected, found: FoundTopic, partitions: int = 8) -> TopicPlan:
    [one] = plan_changes(
        [expected], Cluster("c", BROKERS, {"t": found}), bootstrap=BOOTSTRAP, partitions=partitions
    )
    return one


def why(expected: Expected, found: FoundTopic) -> str:
    [refusal] = planned(expected, found).refusals
    return refusal.why


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
    assert second.changes == ()
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
            assert int(one.to) == -1 or -1 < int(one.found) < int(one.to)
        if one.setting == POLICY:
            assert "delete" not in policies(one.to) - policies(one.found)
            assert is_store or policies(one.to) < policies(one.found)
        if one.setting == IN_SYNC:
            assert int(one.to) < len(replicas)
        assert one.setting != "flush.ms"
        assert (one.setting, one.to) != ("unclean.leader.election.enable", "true")


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
    assert "only 1 replicas are in sync" in why(expected, alone)


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
    assert planned(Expected("t", {}, 1), topic()).refusals == ()  # nothing is declared of it


def test_settings_that_kafka_does_not_say_are_left_alone_and_named() -> None:
    unread = FoundTopic(topic().partitions, None, "not authorized")
    assert planned(Expected("t", {POLICY: "compact"}, 1), unread).refusals == (
        Refusal(
            "settings",
            "unknown",
            "as declared",
            "not authorized",
            "allow DescribeConfigs on this topic for this user",
        ),
    )


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
