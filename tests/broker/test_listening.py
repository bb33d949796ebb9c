"""Who listens at Kafka's addresses, and what a command says where nobody does."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import pytest

from shardpost.embedded import daemons
from shardpost.errors import ShardpostError
from shardpost.kafka.clients import why_nobody_listens
from shardpost.settings import Settings
from shardpost.watch.stack_checks import check_spark
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed

SOON = 5  # seconds


@contextmanager
def listener() -> Iterator[str]:
    with socket.create_server((daemons.LOOPBACK, 0)) as server:
        yield f"{daemons.LOOPBACK}:{server.getsockname()[1]}"


@contextmanager
def silent() -> Iterator[str]:
    """Give an address where connections are neither accepted nor refused: its queue is full."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket())
        server.bind((daemons.LOOPBACK, 0))
        server.listen(0)
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"{daemons.LOOPBACK}:{server.getsockname()[1]}"


def closed() -> str:
    return f"{daemons.LOOPBACK}:{daemons.choose_port()}"


def test_one_server_that_answers_is_enough() -> None:
    with listener() as there, silent() as mute:
        began = time.monotonic()
        assert why_nobody_listens(f"{mute},{closed()},SSL://{there}", 30) is None
        assert time.monotonic() - began < 10


def test_each_server_is_named_with_its_reason() -> None:
    gone, unknown = closed(), "no-such-host.invalid:9092"
    with silent() as mute:
        said = why_nobody_listens(f"{gone}, {unknown},{mute}", 1)
    assert said is not None
    assert f"{gone}: connection refused, {unknown}: " in said
    assert f"{mute}: no answer within 1 s" in said
    assert why_nobody_listens(gone, 1) == "connection refused"


def test_an_address_that_no_socket_takes_is_named_at_once() -> None:
    said = why_nobody_listens("localhost:port", 30)
    assert said is not None
    assert "'port'" in said


@pytest.mark.parametrize(
    "call",
    [
        ["letters", "list"],
        ["letters", "sweep"],
        ["compact"],
        ["compact", "--reconcile"],
        ["topics", "apply"],
        ["topics", "apply", "--dry-run"],
        ["topics", "audit"],
        ["runs", "list"],
        ["runs", "request", "key", "--dag", "weekly_email"],
        ["email", "--week", "2026-W40"],
    ],
    ids=" ".join,
)
def test_every_command_says_within_seconds_that_kafka_is_gone(
    call: list[str], stack_environ: dict[str, str]
) -> None:
    shardpost = CommandLineHere(stack_environ)
    began = time.monotonic()
    line = shardpost.refused(*call, code=1)
    assert time.monotonic() - began < SOON
    address = f"127.0.0.1:{shardpost.settings.kafka_port}"
    assert f"Kafka at {address} cannot be reached (connection refused): `shardpost st" in line


def test_of_another_kafka_its_setting_is_named(stack_environ: dict[str, str]) -> None:
    servers = f"{closed()},{closed()}"
    shardpost = CommandLineHere(stack_environ | {"SHARDPOST_BOOTSTRAP_SERVERS": servers})
    line = shardpost.refused("letters", "list", code=1)
    assert "correct SHARDPOST_BOOTSTRAP_SERVERS" in line
    assert all(f"{server}: connection refused" in line for server in servers.split(","))


def test_a_master_of_spark_that_nobody_runs_is_refused_before_spark_waits_for_it() -> None:
    master = f"spark://{closed()}"
    settings = Settings(spark_master=f"{master},{closed()}")
    with pytest.raises(ShardpostError, match=rf"Spark's master {master}.* reached: .* refused"):
        [*check_spark(installed(settings), datetime.now(UTC))]
    assert [one.state for one in check_spark(installed(Settings()), datetime.now(UTC))] == ["ok"]
