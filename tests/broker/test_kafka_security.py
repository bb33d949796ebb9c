"""TLS and logins, against a real broker that insists on them; nothing says the password."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from shardpost.kafka.greeting import broker_level
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition
from shardpost.lag.partition_sizes import partition_sizes
from shardpost.run_requests.request_topics import RequestWatch
from shardpost.settings import load
from tests.support.certificates import Authority
from tests.support.command_line import CommandLineHere
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.run_requests import ask, request
from tests.support.secured_kafka import PASSWORD, SecuredBroker, secured_broker

# Longest time until a command says what is wrong, in seconds.
BOUND = 30


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.mark.parametrize("how", some(["login", "certificate", "texts", "token"]))
def test_each_client_of_ours_is_admitted(secured: SecuredBroker, how: str) -> None:
    topic = f"retries-{uuid4().hex[:8]}"
    environ = secured.settings(getattr(secured.kafka, how)()) | {"SHARDPOST_TOPIC_RETRIES": topic}
    shardpost = CommandLineHere(environ)
    shardpost("topics", "apply")
    assert all(one["severity"] != "loss" for one in shardpost.json("topics", "audit", code=3))
    settings = load(environ)
    writer = installed(settings).kafka.transactional_producer(f"writer/{topic}")
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, b"value", b"key", 0)
    writer.commit_transaction(30)
    partition = TopicPartition(topic, 0)
    assert [message.value() for message in read_to_end(installed(settings).kafka, partition)] == [
        b"value"
    ]
    assert partition_sizes(installed(settings).kafka, [partition])[partition] > 0
    assert (broker_level(installed(settings).kafka.config(), 10) or 0) > 21
    ask(settings, "key", request())
    watch = RequestWatch(installed(settings).kafka)  # as Airflow's triggerer has it
    assert watch.pending_ends()
    watch.close()
    shardpost("lag", "--all", code=0)
    found = {one["check"]: one["state"] for one in shardpost.json("doctor", code=3)}
    assert found["kafka"] == found["kafka version"] == "ok"


def refused(secured: SecuredBroker, client: Mapping[str, object], **more: Any) -> str:
    shardpost = CommandLineHere(secured.settings(client, **more))
    line = shardpost.refused("topics", "audit", code=1)
    assert PASSWORD not in line
    told = [one for one in shardpost.json("doctor", code=3) if one["check"] == "kafka"]
    assert told[0]["state"] == "error"
    return line


@pytest.mark.one_of("refusals of a broker")
@pytest.mark.timeout(BOUND * 10)
def test_what_a_broker_refuses_is_one_line_with_its_reason(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    login, other = secured.kafka.login(), Authority(tmp_path, "another").certificate
    wrong = refused(secured, {**login, "kafka__sasl_password": "not this one"})
    assert "refuses this client (SASL authentication error: Authentication failed" in wrong
    unknown = refused(secured, {**login, "kafka__ssl_ca_location": other})
    assert "(certificate verify failed: unable to get local issuer certificate)" in unknown
    elsewhere = refused(secured, login, host="localhost")
    assert "certificate is not valid for 'localhost'" in elsewhere
    without = {**secured.kafka.certificate()}
    del without["kafka__ssl_certificate_location"], without["kafka__ssl_key_location"]
    assert "it requires a client certificate" in refused(secured, without)


@pytest.mark.one_of("refusals of a broker")
def test_a_client_with_another_protocol_than_the_port_has_is_told_so(
    secured: SecuredBroker,
) -> None:
    plain = CommandLineHere(secured.plain.environ() | at(secured.ports["SASL_SSL"]))
    told = plain.refused("topics", "audit", code=1)
    assert "without TLS: SHARDPOST_KAFKA__SECURITY_PROTOCOL" in told
    login = CommandLineHere(secured.settings(secured.kafka.login()) | at(secured.plain.kafka_port))
    assert "PLAINTEXT broker listener?" in login.refused("topics", "audit", code=1)


def at(port: int) -> dict[str, str]:
    return {"SHARDPOST_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"}
