"""`shardpost emails resolve` as its users have it: exit codes, JSON, one clear line."""

import getpass

import pytest

from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_state import WeekState
from tests.support.command_line import CommandLine
from tests.support.installed import installed

WEEK = IsoWeek(2026, 47)
OF_WEEK = ("--week", str(WEEK))
WHY = ("--why", "by the mail server's log")


@pytest.fixture
def ready(settings: Settings) -> Settings:
    apply_topics(installed(settings))
    return settings


def unknown(settings: Settings, *clients: str) -> None:
    for client in clients:
        ledger = Ledger(installed(settings), WEEK, partition_of(client, settings.partitions))
        ledger.open()
        ledger.write([LedgerEntry(client, DeliveryState.UNKNOWN, "<1@x>", "no reply")])
        ledger.close()


def test_what_a_person_decides_is_done_and_shown(ready: Settings, shardpost: CommandLine) -> None:
    unknown(ready, "client1", "client2", "evil\x1b[2J")
    said = shardpost("emails", *OF_WEEK, code=3)
    assert "delivery unknown: client1, client2, 'evil\\x1b[2J'" in said
    assert "shardpost emails resolve" in said

    resolve = ("emails", "resolve", *OF_WEEK, *WHY)
    done = shardpost.json(*resolve, "--client", "client1", "client2", "--as", "sent")
    shards = [partition_of(client, ready.partitions) for client in ("client1", "client2")]
    assert done == {
        "week": str(WEEK),
        "resolved": [
            {"client": "client1", "shard": shards[0], "state": "sent"},
            {"client": "client2", "shard": shards[1], "state": "sent"},
        ],
    }
    reason = f"resolved as sent by {getpass.getuser()}: by the mail server's log"
    assert f"client1 got the e-mail of {WEEK}: <1@x> ({reason})" in shardpost(
        "emails", *OF_WEEK, "--client", "client1"
    )
    assert shardpost.json("emails", *OF_WEEK, "--client", "client1")[-1]["reason"] == reason
    said = shardpost(*resolve, "--client", "evil\x1b[2J", "--as", "open")
    assert said.startswith("'evil\\x1b[2J': open (was unknown), shard ")
    assert shardpost.json("emails", *OF_WEEK)["unknown"] == []


def test_what_it_cannot_do_is_one_line_and_changes_nothing(
    ready: Settings, shardpost: CommandLine
) -> None:
    unknown(ready, "client1")
    sent = ("emails", "resolve", *OF_WEEK, "--as", "sent", "--client", "client1")
    line = shardpost.refused(*sent, "--client", "evil\x1b[2J", *WHY, code=1)
    assert "expected clients whose delivery is unknown, found 'evil\\x1b[2J' is open" in line
    with WeekState(installed(ready), WEEK).locked([partition_of("client1", ready.partitions)]):
        assert "is already running" in shardpost.refused(*sent, *WHY, code=1)
    assert "--why" in shardpost.refused(*sent, "--why", " ", code=2)
    no_client = ("emails", "resolve", *OF_WEEK, "--as", "sent", *WHY)
    assert "--client" in shardpost.refused(*no_client, code=2)
    assert "after its name" in shardpost.refused("emails", *OF_WEEK, *sent[1:], *WHY, code=2)
    assert shardpost.run("emails", "resolve", *OF_WEEK, *WHY, "--as", "lost").returncode == 2
    assert shardpost.run("emails").returncode == 2
    assert shardpost.json("emails", *OF_WEEK, code=3)["unknown"] == ["client1"]
