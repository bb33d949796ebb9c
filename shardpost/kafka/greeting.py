"""What a broker reports before any login: its release, and why it refuses a client.

Its release is that of the newest `metadata.version` that it supports, asked in Kafka's own protocol
(ApiVersions, KIP-511 and KIP-584), since librdkafka does not tell. Why it refuses a client (its
certificate, its name, a login, the protocol) librdkafka hears at once, tries again for as long as
it is told to, and says at the end that brokers cannot be reached: whoever listens for it is told.
"""

import re
import socket
import ssl
import time
from collections.abc import Mapping
from tempfile import NamedTemporaryFile
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from shardpost.kafka.clients import TRANSACTIONS_TOPIC

API_VERSIONS, VERSION, CORRELATION = 18, 3, 1
MOST_BYTES = 1 << 20


def broker_level(config: Mapping[str, str], seconds: float) -> int | None:
    """Return the highest `metadata.version` of the first bootstrap server; None if it has none.

    OSError if it does not answer, or not in this protocol.
    """
    host, _, port = config["bootstrap.servers"].split(",")[0].strip().rpartition(":")
    return level_at(config, host.strip("[]"), int(port), seconds)


def level_at(config: Mapping[str, str], host: str, port: int, seconds: float) -> int | None:
    """Return that of one broker, as `broker_level` does."""
    plain = socket.create_connection((host, port), seconds)
    with plain, _secured(config, plain, host) as connection:
        connection.settimeout(seconds)
        connection.sendall(request())
        with connection.makefile("rb") as answer:
            size = int.from_bytes(answer.read(4))
            if not 0 < size <= MOST_BYTES:
                raise OSError(f"expected an answer from Kafka, found {size} bytes")
            return metadata_level(answer.read(size))


def _secured(config: Mapping[str, str], plain: socket.socket, host: str) -> socket.socket:
    if "ssl" not in config.get("security.protocol", "").lower():
        return plain
    context = ssl.create_default_context(
        cafile=config.get("ssl.ca.location"), cadata=config.get("ssl.ca.pem")
    )
    # The client's certificate, which settings name or are, if it has any.
    password = config.get("ssl.key.password", "")  # without any, OpenSSL asks on the terminal
    if certificate := config.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, config.get("ssl.key.location"), password)
    elif text := config.get("ssl.certificate.pem"):
        with NamedTemporaryFile("w", suffix=".pem") as file:  # it takes only files
            file.write(f"{text}\n{config.get('ssl.key.pem', '')}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password)
    if config.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context.wrap_socket(plain, server_hostname=host)


def request() -> bytes:
    """Return an ApiVersions request, with its length."""
    client = b"shardpost"
    header = API_VERSIONS.to_bytes(2) + VERSION.to_bytes(2) + CORRELATION.to_bytes(4)
    header += len(client).to_bytes(2) + client + b"\0"
    software = bytes([len(client) + 1]) + client
    body = header + software + software + b"\0"
    return len(body).to_bytes(4) + body


# A supported feature: its name with its length, its lowest and its highest level. Those come before
# the features in force, which have the same names.
_SUPPORTED = re.compile(rb"\x11metadata\.version..(..)", re.DOTALL)


def metadata_level(answer: bytes) -> int | None:
    """Return the highest `metadata.version` in an ApiVersions response; None if it has none.

    OSError for what is no such response.
    """
    if answer[:4] != CORRELATION.to_bytes(4) or len(answer) < 6:
        raise OSError("expected an answer from Kafka, found something else")
    found = _SUPPORTED.search(answer)
    return int.from_bytes(found[1]) if found else None


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
        broker_level(config, seconds)
    except TimeoutError:
        return None
    except (OSError, ValueError):
        return (
            "it ends a connection without TLS: SHARDPOST_KAFKA__SECURITY_PROTOCOL, or this is "
            "not Kafka"
        )
    return None


def _final(heard: list[KafkaError]) -> list[KafkaError]:
    return [error for error in heard if error.code() in _FINAL]


def _said(config: Mapping[str, str], reason: str, seconds: float) -> str:
    """Return the reason; of a certificate, what OpenSSL has against it, which librdkafka omits."""
    if _NO_CERTIFICATE.search(reason) and not config.keys() & _OWN_CERTIFICATE:
        return "it requires a client certificate: SHARDPOST_KAFKA__SSL_CERTIFICATE_LOCATION"
    if _CERTIFICATE in reason:
        try:
            broker_level(config, seconds)
        except (OSError, ValueError) as error:
            if why := getattr(error, "verify_message", None):
                return f"{_CERTIFICATE}: {why}"
    return reason
