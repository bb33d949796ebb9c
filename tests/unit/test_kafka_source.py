"""What Spark's Kafka client is configured with; no JVM."""

import pytest

from shardpost.settings import load
from shardpost.spark import kafka_source
from tests.conftest import environ
from tests.support.installed import installed

TIMEOUTS = ("kafka.default.api.timeout.ms", "kafkaConsumer.pollTimeoutMs")


@pytest.mark.parametrize(
    ("seconds", "request_ms", "whole_ms"), [(60, 30_000, 60_000), (10, 5_000, 10_000)]
)
def test_a_silent_broker_is_given_up_in_time_to_ask_another(
    seconds: float, request_ms: int, whole_ms: int
) -> None:
    found = kafka_source._client(installed(load(environ(kafka_timeout=seconds))).kafka)
    assert found["kafka.request.timeout.ms"] == str(request_ms)
    assert [found[name] for name in TIMEOUTS] == [str(whole_ms)] * 2


def test_what_a_user_sets_takes_precedence_and_lengthens_the_whole() -> None:
    given = environ(kafka__request_timeout_ms=90_000, kafka__max_partition_fetch_bytes=65_536)
    found = kafka_source._client(installed(load(given)).kafka)
    assert found["kafka.request.timeout.ms"] == "90000"
    assert [found[name] for name in TIMEOUTS] == ["90000"] * 2
    assert found["kafka.max.partition.fetch.bytes"] == "65536"
    assert found["kafka.isolation.level"] == "read_committed"
