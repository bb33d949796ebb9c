"""The commands `email` and `emails` as the contract has them: JSON, exit codes, one clear line."""

import threading
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.jobs_here import CommandsHere
from tests.support.mail_server import TAKE_AND_DROP, MailServer
from tests.support.week_tables import World

WEEK = "2026-W45"


@pytest.fixture
def world(settings: Settings, server: MailServer) -> World:
    apply_topics(installed(settings))
    return World(settings.model_copy(update={"smtp_port": server.port}))


@pytest.fixture
def shardpost(world: World, spark: SparkSession) -> CommandLine:
    del spark  # the jobs find it
    return CommandsHere(world.settings.environ())


@pytest.mark.one_of("weeks in trouble")
def test_an_unknown_delivery_makes_both_commands_end_with_3(
    world: World, server: MailServer, shardpost: CommandLine
) -> None:
    for number, client in enumerate(("client1", "client2", "client3")):
        world.position(str(number), client)
        world.client(client, subscribed=client != "client3")
    world.commit(looked_at=datetime.now(UTC))

    listed = shardpost.json("email", "--week", WEEK, "--dry-run")
    assert (listed["week"], listed["snapshot"]) == (WEEK, 1)
    assert sorted((to["client"], to["email"], to["positions"]) for to in listed["recipients"]) == [
        ("client1", "client1@x.example", ["0"]),
        ("client2", "client2@x.example", ["1"]),
    ]

    lost = "client2@x.example"
    server.script = lambda at, to: TAKE_AND_DROP if (at, to) == ("end", lost) else None
    sent = shardpost.json("email", "--week", WEEK, code=3)
    assert sent["unknown"] == ["client2"]

    status = shardpost.json("emails", "--week", WEEK, code=3)
    assert status["unknown"] == ["client2"]
    assert status["shards"] == sent["shards"]
    states = ("sent", "failed", "unknown", "suppressed", "open")
    assert [sum(row[state] for row in status["shards"]) for state in states] == [1, 0, 1, 1, 0]

    ledger = shardpost.json("emails", "--week", WEEK, "--client", "client2", code=3)
    assert [row["state"] for row in ledger] == ["sending", "unknown"]
    assert "suppressed" in shardpost("emails", "--week", WEEK, "--client", "client3")
    server.script = lambda _at, _to: None
    assert shardpost.json("email", "--week", WEEK, code=3)["unknown"] == ["client2"]
    resend = ("email", "--week", WEEK, "--on-unknown", "resend")
    assert len(shardpost.json(*resend, "--dry-run")["recipients"]) == 1
    assert shardpost.json(*resend)["unknown"] == []
    assert len(server.message_ids[lost]) == 1
    assert "not in that week's audience" in shardpost(
        "emails", "--week", WEEK, "--client", "client4"
    )


@pytest.mark.one_of("whole systems")
def test_one_machine_mails_its_shards_side_by_side(world: World, server: MailServer) -> None:
    for number in range(40):
        world.position(str(number), f"client{number}")
        world.client(f"client{number}")
    world.commit(looked_at=datetime.now(UTC))
    shards: set[int] = set()
    all_there = threading.Event()

    def until_each_shard_has_sent(stage: str, to: str) -> str | None:
        if stage != "end":
            return None
        shards.add(partition_of(to.partition("@")[0], world.settings.partitions))
        if len(shards) == world.settings.partitions:
            all_there.set()
        return None if all_there.wait(60) else "554 the other shards did not come"

    server.script = until_each_shard_has_sent
    any_cores = world.settings.model_copy(update={"spark_master": "local[*]"})
    sent = CommandLine(any_cores.environ()).json("email", "--week", WEEK)
    assert sum(shard["sent"] for shard in sent["shards"]) == 40
    assert set(server.taken.values()) == {1}
