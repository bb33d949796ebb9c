"""Why a Kafka that listens refuses a client: its certificate, its name, a login, the protocol.

librdkafka tries again for as long as it is told to, and says at the end that brokers cannot be
reached. Why it hears at once, but says only to whoever listens for it.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from shardpost.kafka.broker_version import broker_version
from shardpost.kafka.clients import TRANSACTIONS_TOPIC

ASK_SECONDS = 0.5  # after which what was heard is looked at
_FINAL = {KafkaError._SSL, KafkaError._AUTHENTICATION}
# Told as a lost connection. An alert is what TLS 1.3 says of a certificate that a client has not.
_HINT = re.compile(r"security\.protocol|PLAINTEXT broker listener|SSL alert number")
_CERTIFICATE = "certificate verify failed"
# What brokers answer where a client has none, by the release of their Java.
_NO_CERTIFICATE = re.compile(r"alert (bad certificate|certificate required)|certificate required")
_OWN_CERTIFICATE = {"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"}
# Around the reason: which broker, in librdkafka's words, and after how long.
_AROUND = re.compile(r"^\S+/(?:bootstrap|\d+): | \(after \d+ms in state \w+\)$")


def why_refused(config: dict[str, Any], seconds: float) -> str | None:
    """Return why Kafka refuses a client of that configuration; None if it does not, or is silent.

    At once where it refuses a certificate or a login; else after so many seconds, since a broker
    that is restarted ends connections, too.
    """
    heard: list[KafkaError] = []
    listening: dict[str, Any] = {**config, "error_cb": heard.append}
    client = AdminClient(listening)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not _final(heard):
        try:
            client.list_topics(TRANSACTIONS_TOPIC, timeout=min(ASK_SECONDS, left))
        except KafkaException:
            client.poll(0)
        else:
            return None
    told = _final(heard) or [error for error in heard if _HINT.search(error.str())]
    if not told:
        return _why_no_answer(config, seconds)
    return _said(config, _AROUND.sub("", told[-1].str()), seconds)


def _why_no_answer(config: Mapping[str, str], seconds: float) -> str | None:
    """Return why a request without TLS is not answered as by Kafka; None if it is, or TLS is on."""
    if "ssl" in config.get("security.protocol", "").lower():
        return None
    try:
        broker_version(config, seconds)
    except TimeoutError:
        return None
    except (OSError, ValueError):
        return "it ends a connection without TLS: SHARDPOST_KAFKA__SECURITY_PROTOCOL, or no Kafka"
    return None


def _final(heard: list[KafkaError]) -> list[KafkaError]:
    return [error for error in heard if error.code() in _FINAL]


def _said(config: Mapping[str, str], reason: str, seconds: float) -> str:
    """Return the reason; of a certificate, what OpenSSL has against it, which librdkafka omits."""
    if _NO_CERTIFICATE.search(reason) and not config.keys() & _OWN_CERTIFICATE:
        return "it wants a certificate of the client: SHARDPOST_KAFKA__SSL_CERTIFICATE_LOCATION"
    if _CERTIFICATE not in reason:
        return reason
    try:
        broker_version(config, seconds)
    except (OSError, ValueError) as error:
        why = getattr(error, "verify_message", None)
        return f"{_CERTIFICATE}: {why}" if why else reason
    return reason
