"""A topic that is deleted and recreated, as somebody may do it to a running installation."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from shardpost.kafka.offsets import watermarks
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.job_process import wait_for


def recreate_topic(settings: Settings, topic: str, partitions: int = 1, **config: str) -> None:
    """Delete a topic and create one of the same name; dots of settings are underscores here."""
    client = installed(settings).kafka.admin()
    client.delete_topics([topic])[topic].result(20)
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dotted)

    def created() -> bool:
        try:
            client.create_topics([new])[topic].result(20)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False  # the deletion is not through yet
            raise
        return True

    wait_for(created, f"topic {topic} to be recreated", seconds=30)
    watermarks(installed(settings).kafka, {topic: partitions}, committed=True)  # it has a leader
