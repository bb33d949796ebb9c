"""Past weeks by `airflow backfill create`.

Each has its own audience, and nobody gets a second mail. Other tests have other clients.
"""

import email
import json
from datetime import UTC, datetime
from email import policy

import httpx
import pytest

from tests.support.backfills import backfill
from tests.support.command_line import CommandLine
from tests.support.reference import Raw, closed, position, produce


def at(day: int) -> int:
    """Return noon of a day of November 2025, in milliseconds."""
    return int(datetime(2025, 11, day, 12, tzinfo=UTC).timestamp() * 1000)


def contact(client: str, *, subscribed: bool = True, address: str | None = None) -> Raw:
    form = {"Client": client, "Name": client.title(), "Email": address or f"{client}@example.com"}
    value = json.dumps(form | {"Subscribed": subscribed}).encode()
    return Raw("clients", client.encode(), value)


# Weeks 2025-W45 (3 to 9 November), W46 (10 to 16) and W47 (17 to 23).
CLIENTS = ("anna", "ben", "cleo", "dora", "emil")
HISTORY = [
    *(contact(client) for client in CLIENTS[:3]),
    contact("dora", subscribed=False),
    contact("emil", address="nowhere"),
    position("w1", "anna", "NASDAQ", timestamp_ms=at(4)),
    position("w2", "ben", "NASDAQ", timestamp_ms=at(5)),
    position("w4", "dora", "NYSE", timestamp_ms=at(5)),
    position("w5", "emil", "NYSE", timestamp_ms=at(5)),
    position("w1", "cleo", "NASDAQ", timestamp_ms=at(12)),
    closed("w2", timestamp_ms=at(18)),
]


def received(stack: CommandLine) -> list[tuple[str, str]]:
    """Return (recipient, Message-ID) of every e-mail to these clients that the sink has."""
    messages = (
        email.message_from_bytes(file.read_bytes(), policy=policy.default)
        for file in (stack.settings.home / "mail").glob("*.eml")
    )
    found = sorted((m["To"].addresses[0].username, str(m["Message-ID"])) for m in messages)
    return [one for one in found if one[0] in CLIENTS]


@pytest.mark.one_of("whole systems")
def test_each_past_week_has_its_own_audience_and_a_second_backfill_mails_nobody(
    stack: CommandLine, api: httpx.Client
) -> None:
    produce(stack.settings, HISTORY)
    stack("compact")
    held = stack.json("holders")
    assert {client: held[client] for client in CLIENTS if client in held} == {
        "cleo": ["w1"],
        "dora": ["w4"],
        "emil": ["w5"],
    }

    backfill(stack, api, "2025-11-03", "2025-11-10", "2025-11-10", "2025-11-17")
    assert [who for who, _ in received(stack)] == ["anna", "ben", "ben", "cleo"]
    assert len({message_id for _, message_id in received(stack)}) == 4
    for week, sent in (("2025-W45", 2), ("2025-W46", 2)):
        shards = stack.json("emails", "--week", week)["shards"]
        assert sum(shard["sent"] for shard in shards) == sent
        assert sum(shard["suppressed"] for shard in shards) == 1
        assert sum(shard["failed"] for shard in shards) == 1
        assert sum(shard["open"] for shard in shards) == 0

    before = received(stack)
    backfill(stack, api, "2025-11-10", "2025-11-10", "2025-11-17")
    assert received(stack) == before
    [row] = list(stack.json("emails", "--week", "2025-W46", "--client", "emil"))[-1:]
    assert "failed" in json.dumps(row)
