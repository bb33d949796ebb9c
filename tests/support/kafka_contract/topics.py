"""Ids and effective settings of topics."""

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.topic_administration import alter_configs
from shardpost.kafka.topic_metadata import (
    RecreatedTopicError,
    require_same_topics,
    topic_configs,
    topic_ids,
)
from shardpost.topics.observation import described
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_contract.cluster import Cluster, of


class TopicsContract:
    """`topic_ids` and `topic_configs`."""

    def test_a_topic_keeps_its_id_and_each_has_another(self, cluster: Cluster) -> None:
        one, two = cluster.topic().topic, cluster.topic().topic
        found = topic_ids(installed(cluster.settings).kafka, [one, two])
        assert set(found) == {one, two}
        assert found[one] != found[two]
        assert topic_ids(installed(cluster.settings).kafka, [one, two]) == found
        require_same_topics(installed(cluster.settings).kafka, found, advice="")

    def test_a_topic_that_was_deleted_and_recreated_has_another_id_and_is_refused(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        before = topic_ids(installed(cluster.settings).kafka, [topic.topic])
        cluster.recreate(topic)
        after = topic_ids(installed(cluster.settings).kafka, [topic.topic])
        with pytest.raises(RecreatedTopicError) as refused:
            require_same_topics(installed(cluster.settings).kafka, before, advice="Do this.")
        assert str(refused.value) == (
            f"topic {topic.topic}: expected the id {before[topic.topic]}, found"
            f" {after[topic.topic]}: it was deleted and recreated, or belongs to another cluster."
            " Do this."
        )

    def test_a_recreated_topic_is_empty_and_groups_have_committed_nothing_of_it(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"))
        with cluster.group("readers") as group:
            group.commit(offsets=[of(topic, 1)], asynchronous=False)
        cluster.recreate(topic)
        assert cluster.read(topic) == []
        with cluster.group("readers") as group:
            wait_for(lambda: group.committed([of(topic)], timeout=20)[0].offset < 0, "the group")

    def test_a_setting_that_is_changed_is_in_force_and_the_others_stay(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic(cleanup_policy="compact", min_compaction_lag_ms="7").topic
        assert (
            alter_configs(
                installed(cluster.settings).kafka, {topic: {"retention.ms": "5"}, "none": {}}
            )
            == []
        )

        def sources() -> list[tuple[str | None, str]]:
            kafka = installed(cluster.settings).kafka
            entries = described(kafka, ResourceType.TOPIC, [topic])[topic].entries or {}
            names = ("retention.ms", "min.compaction.lag.ms", "delete.retention.ms")
            return [entries[name] for name in names]

        expected = [("5", "topic"), ("7", "topic"), ("86400000", "default")]
        wait_for(lambda: sources() == expected, "the change")

    def test_a_topic_that_is_not_there_has_no_id_nor_settings_that_can_be_changed(
        self, cluster: Cluster
    ) -> None:
        with pytest.raises(KafkaUnreachableError, match="opic"):
            topic_ids(installed(cluster.impatient).kafka, ["nowhere"])
        kafka = installed(cluster.impatient).kafka
        found = described(kafka, ResourceType.TOPIC, ["nowhere"])["nowhere"]
        assert found.entries is None
        assert found.why
        [failed] = alter_configs(
            installed(cluster.impatient).kafka, {"nowhere": {"retention.ms": "5"}}
        )
        assert "topic nowhere: its settings cannot be changed" in str(failed)

    def test_settings_of_a_topic_are_those_given_and_defaults(self, cluster: Cluster) -> None:
        topic = cluster.topic(cleanup_policy="compact", min_compaction_lag_ms="7").topic
        plain = cluster.topic().topic
        found = topic_configs(installed(cluster.settings).kafka, [topic, plain])
        names = ("cleanup.policy", "min.compaction.lag.ms", "delete.retention.ms")
        assert [found[topic][name] for name in names] == ["compact", "7", "86400000"]
        assert [found[plain][name] for name in names] == ["delete", "0", "86400000"]
