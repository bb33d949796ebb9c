"""Past weeks by `airflow backfill create`.

Each has its own audience, and nobody gets a second mail. Other tests have other clients.
"""

import email
import json
import time
from datetime import UTC, datetime
from email import policy

import httpx
import pytest

from tests.support.command_line import CommandLine
from tests.support.reference import Raw, closed, position, produce

DEADLINE_SECONDS = 600


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


def backfill(stack: CommandLine, api: httpx.Client, first: str, last: str, *ends: str) -> None:
    """Create a backfill of weeks that end on these days, and see that all of them end well."""
    since, deadline = datetime.now(UTC), time.monotonic() + DEADLINE_SECONDS
    _create(stack, api, (first, last), deadline)
    while (is_open := _is_open(api)) or not _runs(api, since):
        assert time.monotonic() < deadline, _runs(api, since)
        if not is_open:  # it was completed before it had a run: Airflow on SQLite again
            _create(stack, api, (first, last), deadline)
        time.sleep(1)
    assert _runs(api, since) == dict.fromkeys(ends, "success")


def _create(stack: CommandLine, api: httpx.Client, days: tuple[str, str], deadline: float) -> None:
    """Create it, and again where Airflow on SQLite breaks off: what was begun is cancelled."""
    command = ("airflow", "backfill", "create", "--dag-id", "weekly_email")
    dates = ("--from-date", days[0], "--to-date", days[1], "--reprocess-behavior", "completed")
    while (done := stack.run(*command, *dates)).returncode:
        assert "database is locked" in done.stdout + done.stderr, done
        assert time.monotonic() < deadline, done
        for begun in _backfills(api):
            if not begun["completed_at"]:
                api.put(f"/api/v2/backfills/{begun['id']}/cancel").raise_for_status()


def _is_open(api: httpx.Client) -> bool:
    return not all(one["completed_at"] for one in _backfills(api))


def _runs(api: httpx.Client, since: datetime) -> dict[str, str]:
    """Return the state of each backfill's run since then by the day on which its week ended."""
    # Other tests leave a hundred runs of this DAG: more than Airflow lists at once.
    query = {"run_type": "backfill"}
    answer = api.get("/api/v2/dags/weekly_email/dagRuns", params=query).raise_for_status().json()
    return {
        run["data_interval_end"][:10]: run["state"]
        for run in answer["dag_runs"]
        if datetime.fromisoformat(run["queued_at"]) >= since
    }


def _backfills(api: httpx.Client) -> list[dict[str, str]]:
    answer = api.get("/api/v2/backfills", params={"dag_id": "weekly_email"}).raise_for_status()
    found: list[dict[str, str]] = answer.json()["backfills"]
    return found


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
