"""librdkafka's settings as the Java client's."""

import pytest

from shardpost.errors import UsageError
from shardpost.kafka.java_settings import java_settings


def test_a_login_becomes_a_jaas_line_with_its_quotes_escaped() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "/ca.pem",
    }
    assert java_settings(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="me" password="a\\"b\\\\c";'
        ),
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }


def test_a_setting_that_java_does_not_have_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match="SHARDPOST_KAFKA__QUEUE_BUFFERING_MAX_MS"):
        java_settings({"queue.buffering.max.ms": "5"})
