"""A leader that dies with records that no other broker has: what each set of settings loses."""

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewTopic

from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from tests.support.cluster import Cluster
from tests.support.installed import installed
from tests.support.job_process import wait_for

SAFE = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
UNSAFE = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
COUNT = 10
LEADER, FOLLOWER = 1, 2  # the third one is there for the controllers' majority


def acknowledged(settings: Settings, topic: str, acks: str, first: int) -> set[bytes]:
    """Write COUNT records; return those that Kafka acknowledged within five seconds."""
    found: set[bytes] = set()

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            found.add(message.value() or b"")

    more = {"acks": acks, "message.timeout.ms": 5000}
    writer = Producer(installed(settings).kafka.config(**more))
    for number in range(first, first + COUNT):
        writer.produce(topic, b"%d" % number, partition=0, on_delivery=told)
    writer.flush(30)
    return found


def in_sync(settings: Settings, topic: str) -> tuple[int, list[int]]:
    """Return the leader of the topic, and the brokers that are in sync with it."""
    found = installed(settings).kafka.metadata().topics[topic].partitions[0]
    return found.leader, sorted(found.isrs)


@pytest.mark.parametrize(
    ("config", "acks", "is_lost"),
    [(UNSAFE, "1", True), (UNSAFE, "all", True), (SAFE, "all", False)],
)
def test_what_a_leader_acknowledged_alone_is_lost_unless_two_have_to(
    cluster: Cluster, settings: Settings, config: dict[str, str], acks: str, *, is_lost: bool
) -> None:
    topic = f"{settings.topic('positions')}-{acks}"
    kafka = installed(settings).kafka
    client = kafka.factories.admin(kafka.config())
    placed = NewTopic(topic, 1, replica_assignment=[[LEADER, FOLLOWER]], config=config)
    client.create_topics([placed])[topic].result(30)
    cluster.await_replicas()
    leader, follower = cluster.brokers[LEADER], cluster.brokers[FOLLOWER]
    kept = acknowledged(settings, topic, "all", 0)
    assert len(kept) == COUNT
    try:
        follower.kill()
        wait_for(lambda: in_sync(settings, topic) == (LEADER, [LEADER]), "a leader alone")
        alone = acknowledged(settings, topic, acks, COUNT)
        assert bool(alone) == is_lost  # with two that have to have it, it is refused
        leader.kill()
        follower.start()
        if is_lost:
            wait_for(lambda: in_sync(settings, topic)[0] == FOLLOWER, "an unclean election")
    finally:
        cluster.mend()
    cluster.await_replicas()
    found = {
        message.value()
        for message in read_to_end(installed(settings).kafka, TopicPartition(topic, 0))
    }
    assert kept <= found
    assert bool(alone - found) == is_lost
